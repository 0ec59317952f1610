// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_overlap
/// The times of each chunk of `overlap()`, and how much of the transfer time was hidden by
/// computation.
#pragma once

#include <runnel/config.hpp>

#include <chrono>
#include <cstddef>
#include <span>

namespace runnel::inline RUNNEL_ABI {

/// A span of time, measured from the start of the run.
struct OverlapInterval {
  std::chrono::nanoseconds start{};  ///< when it begins
  std::chrono::nanoseconds stop{};   ///< when it ends
  /// The length of the interval: stop - start.
  [[nodiscard]] constexpr std::chrono::nanoseconds length() const noexcept { return stop - start; }
};

/// The times of the steps of one chunk; the interval of a step that the chunk did not have is
/// empty. The time of a transfer includes its wait for the copy engine.
struct OverlapChunkTimes {
  std::size_t chunk = 0;       ///< the chunk's index
  std::size_t buffer = 0;      ///< the index of the device buffer that contained it
  int device = 0;              ///< the device's ordinal
  OverlapInterval read{};      ///< the call of the source, by the host's clock
  OverlapInterval copy_in{};   ///< host to device; this and the next two by timed events
  OverlapInterval compute{};   ///< the work that the function enqueued
  OverlapInterval copy_out{};  ///< device to host
  OverlapInterval write{};     ///< the call of the sink, by the host's clock
};

/// How much of the transfer time was hidden by computation: the result of measure_overlap().
struct OverlapMeasure {
  std::chrono::nanoseconds transfer{};  ///< the time during which at least one transfer was running
  std::chrono::nanoseconds compute{};   ///< the time during which at least one chunk was computed
  std::chrono::nanoseconds hidden{};    ///< the time during which both were
  /// The part of the transfer time that was hidden: hidden / transfer, 0 to 1.
  [[nodiscard]] constexpr double hidden_share() const noexcept {
    return transfer.count() > 0
               ? static_cast<double>(hidden.count()) / static_cast<double>(transfer.count())
               : 0;
  }
};

/// Combines the times of all chunks.
[[nodiscard]] OverlapMeasure measure_overlap(std::span<const OverlapChunkTimes> chunks);

}  // namespace runnel::inline RUNNEL_ABI
