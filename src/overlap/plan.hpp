// SPDX-License-Identifier: Apache-2.0
/// The plan of a run of overlap(): all sizes and streams, chosen and checked before any copy.
#pragma once

#include <runnel/overlap.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

inline constexpr const char* overlap_operation = "overlap";

struct OverlapPlan {
  std::vector<OverlapEnd> inputs;
  OverlapEnd output;  // Its `width` is not 0.
  std::vector<Device> devices;
  OverlapStrategy strategy = OverlapStrategy::automatic;  // A or B, once chosen.
  // At least one range is in pageable memory, so that its copies are staged.
  bool staged = false;
  size_t halo = 0;
  size_t chunk = 0;               // Items in a chunk.
  size_t buffers = 0;             // Chunk buffers of each device.
  size_t chunk_streams = 0;       // Streams of each device that strategy A uses in turn.
  size_t streams = 0;             // Streams of each device.
  size_t in_flight = 0;           // From the options or chosen; `buffers` may be smaller.
  std::optional<size_t> items{};  // The total number of items; empty if it depends on sources.

  bool has_output() const noexcept { return output.kind != OverlapEnd::Kind::none; }
  bool has_source() const noexcept;
  bool has_sink() const noexcept { return output.kind == OverlapEnd::Kind::function; }
  /// Whether the host has work between the steps of a chunk: for a source, a sink or a filter.
  bool needs_host() const noexcept { return has_source() || has_sink() || output.filtered; }
  /// The maximum number of chunks whose steps are enqueued on one device at a time. If the host is
  /// not needed, it is twice the number of buffers, which keeps the device's queues filled.
  size_t max_enqueued() const noexcept { return needs_host() ? buffers : 2 * buffers; }
  /// The sizes of one chunk's buffers, in elements: of an input, including the halo, and of the
  /// output.
  size_t input_elements(size_t input) const noexcept {
    return inputs[input].width * (chunk + 2 * halo);
  }
  size_t output_elements() const noexcept { return output_elements(chunk); }
  size_t output_elements(size_t count) const noexcept {
    return output.per_chunk != 0 ? output.per_chunk : output.width * count;
  }
  /// Describes the chunk with this index. Its items begin at `first`, and the data is known up to
  /// `end`. Requires: first <= end.
  [[nodiscard]] OverlapChunk describe(size_t index, size_t first, size_t end) const noexcept {
    const size_t count = std::min(chunk, end - first);
    return {.index = index,
            .first = first,
            .count = count,
            .before = std::min(halo, first),
            .after = std::min(halo, end - first - count),
            .buffer = index / devices.size() % buffers,
            .device = devices[index % devices.size()]};
  }
};

/// Makes the plan, and checks all arguments. @throws errc::invalid_argument, errc::out_of_memory,
/// or the errors of the devices' queries
[[nodiscard]] OverlapPlan plan_overlap(const OverlapEnd* inputs, size_t input_count,
                                       const OverlapEnd& output, const OverlapOptions& options);

/// Reduces the plan's memory by one step, if the options do not set all sizes: first to fewer
/// chunks in flight, then to smaller chunks. Returns false, and changes nothing, if a smaller plan
/// is not useful.
[[nodiscard]] bool shrink(OverlapPlan& plan, const OverlapOptions& options);
/// A text that describes the memory that the plan needs.
std::string describe_memory(const OverlapPlan& plan);

/// What an error calls the elements of an end. Elements of one byte are bytes: overlap_bytes() and
/// other languages have no others.
inline const char* unit_of(const OverlapEnd& end) noexcept {
  return end.element_bytes == 1 ? "bytes" : "elements";
}

}  // namespace runnel::inline RUNNEL_ABI::detail
