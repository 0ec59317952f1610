// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_overlap
/// The times of each chunk of `overlap()`, and how much of the transfer time computing hid.
#pragma once

#include <runnel/config.hpp>

#include <chrono>
#include <cstddef>
#include <span>

namespace runnel::inline RUNNEL_ABI {

/// A span of time, measured from the start of the run.
struct OverlapInterval {
  std::chrono::nanoseconds start{};  ///< its beginning
  std::chrono::nanoseconds stop{};   ///< its end
  /// stop - start.
  [[nodiscard]] constexpr std::chrono::nanoseconds length() const noexcept { return stop - start; }
};

/// The times of the steps of one chunk; a step that the chunk did not have is empty. A transfer
/// that waits for the copy engine counts from the moment at which it could have started.
struct OverlapChunkTimes {
  std::size_t chunk = 0;       ///< the chunk's index
  std::size_t buffer = 0;      ///< which of the device's chunk buffers it was in
  int device = 0;              ///< the device's ordinal
  OverlapInterval read{};      ///< the source's reading, by the clock of the host
  OverlapInterval copy_in{};   ///< host to device; this and the next two by timed events
  OverlapInterval compute{};   ///< the function's work
  OverlapInterval copy_out{};  ///< device to host
  OverlapInterval write{};     ///< the sink's writing, by the clock of the host
};

/// How much of the transfer time computing hid: the result of measure_overlap().
struct OverlapMeasure {
  std::chrono::nanoseconds
      transfer{};  ///< the time during which at least one transfer was under way
  std::chrono::nanoseconds compute{};  ///< the time during which at least one chunk was computed
  std::chrono::nanoseconds hidden{};   ///< the time during which both were
  /// hidden / transfer, 0 to 1.
  [[nodiscard]] constexpr double hidden_share() const noexcept {
    return transfer.count() > 0
               ? static_cast<double>(hidden.count()) / static_cast<double>(transfer.count())
               : 0;
  }
};

/// Sums up the times of all chunks.
[[nodiscard]] OverlapMeasure measure_overlap(std::span<const OverlapChunkTimes> chunks);

}  // namespace runnel::inline RUNNEL_ABI
