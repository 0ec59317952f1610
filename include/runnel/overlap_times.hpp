// SPDX-License-Identifier: Apache-2.0
/// When each chunk of `overlap()` was where, and how much of the transfers was hidden behind computing.
#pragma once

#include <runnel/config.hpp>

#include <chrono>
#include <cstddef>
#include <span>

namespace runnel::inline RUNNEL_ABI {

/// Since the start of the run.
struct OverlapInterval {
  std::chrono::nanoseconds start{};  ///< when it began
  std::chrono::nanoseconds stop{};   ///< when it ended
  /// How long it took.
  [[nodiscard]] constexpr std::chrono::nanoseconds length() const noexcept { return stop - start; }
};

/// The steps of one chunk; those that there were not are empty. A transfer that waits for another to leave the copy engine counts from
/// when it could have started.
struct OverlapChunkTimes {
  std::size_t chunk = 0;       ///< its index
  std::size_t buffer = 0;      ///< which of the device's chunk buffers it was in
  int device = 0;              ///< its ordinal
  OverlapInterval read{};      ///< by the source; by the clock of the host
  OverlapInterval copy_in{};   ///< host to device; this and the next two by timed events
  OverlapInterval compute{};   ///< the function's work
  OverlapInterval copy_out{};  ///< device to host
  OverlapInterval write{};     ///< by the sink; by the clock of the host
};

/// What measure_overlap() finds.
struct OverlapMeasure {
  std::chrono::nanoseconds transfer{};  ///< during which at least one transfer was under way
  std::chrono::nanoseconds compute{};   ///< during which at least one chunk was computed
  std::chrono::nanoseconds hidden{};    ///< during which both were
  /// The part of the transfer time that computing hid, 0 to 1.
  [[nodiscard]] constexpr double hidden_share() const noexcept {
    return transfer.count() > 0 ? static_cast<double>(hidden.count()) / static_cast<double>(transfer.count()) : 0;
  }
};

/// How long there were transfers, how long computing, and how long both at once.
[[nodiscard]] OverlapMeasure measure_overlap(std::span<const OverlapChunkTimes> chunks);

}  // namespace runnel::inline RUNNEL_ABI
