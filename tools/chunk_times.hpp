// SPDX-License-Identifier: Apache-2.0
/// When each chunk was where, and what follows from it.
#pragma once

#include <cstddef>
#include <vector>

namespace tool {

/// Milliseconds since the start of the run.
struct Interval {
  double start;
  double stop;
  [[nodiscard]] double length() const noexcept { return stop - start; }
};

struct ChunkTimes {
  std::size_t chunk;
  std::size_t stream;
  Interval read;  ///< from the file, by the clock of the host
  Interval in;    ///< host to device, and the next two: by timed events
  Interval compute;
  Interval out;    ///< device to host
  Interval write;  ///< to the file, by the clock of the host
};

struct Overlap {
  double transfer_ms;  ///< time during which at least one transfer was under way
  double compute_ms;   ///< time during which at least one kernel was under way
  double hidden_ms;    ///< time during which both were
  /// The part of the transfer time that computing hid, 0 to 1.
  [[nodiscard]] double hidden_share() const noexcept { return transfer_ms > 0 ? hidden_ms / transfer_ms : 0; }
};

[[nodiscard]] Overlap measure_overlap(const std::vector<ChunkTimes>& chunks);

}  // namespace tool
