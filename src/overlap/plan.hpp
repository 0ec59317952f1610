// SPDX-License-Identifier: Apache-2.0
/// The plan of a run of overlap(): all sizes and streams, chosen and checked before anything moves.
#pragma once

#include <runnel/overlap.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

inline constexpr const char* overlap_operation = "overlap";

struct OverlapPlan {
  std::vector<OverlapEnd> inputs;
  OverlapEnd output;  // its `width` is not 0
  std::vector<Device> devices;
  OverlapStrategy strategy = OverlapStrategy::automatic;  // A or B once it is chosen
  // the run tries the other strategy, too, and goes on with the faster one
  bool tries_both = false;
  // a range is in pageable memory, whose copies are staged
  bool staged = false;
  std::size_t halo = 0;
  std::size_t chunk = 0;               // items of a chunk
  std::size_t buffers = 0;             // chunk buffers of each device
  std::size_t chunk_streams = 0;       // streams of each device that take turns in strategy A
  std::size_t streams = 0;             // streams of each device
  std::size_t in_flight = 0;           // as the options say or as chosen; `buffers` may be fewer
  std::optional<std::size_t> items{};  // items in all; empty if sources decide

  [[nodiscard]] bool has_output() const noexcept { return output.kind != OverlapEnd::Kind::none; }
  [[nodiscard]] bool has_source() const noexcept;
  [[nodiscard]] bool has_sink() const noexcept { return output.kind == OverlapEnd::Kind::function; }
  /// Whether the host is needed between the steps of a chunk: for a source, a sink or a filter.
  [[nodiscard]] bool needs_host() const noexcept {
    return has_source() || has_sink() || output.filtered;
  }
  /// Chunks whose steps may be enqueued for one device at once. If the host is not needed, that is
  /// twice as many as there are buffers, which keeps the device's queues filled.
  [[nodiscard]] std::size_t places() const noexcept { return needs_host() ? buffers : 2 * buffers; }
  /// The same for all devices together.
  [[nodiscard]] std::size_t all_places() const noexcept { return places() * devices.size(); }
  /// Elements of an input, halo included, and of the output, for which one chunk's buffers have
  /// room.
  [[nodiscard]] std::size_t input_elements(std::size_t input) const noexcept {
    return inputs[input].width * (chunk + 2 * halo);
  }
  [[nodiscard]] std::size_t output_elements() const noexcept { return output_elements(chunk); }
  [[nodiscard]] std::size_t output_elements(std::size_t count) const noexcept {
    return output.per_chunk != 0 ? output.per_chunk : output.width * count;
  }
  /// The chunk of this index, whose items begin at `first`, of data that is known up to `end`.
  /// Requires: first <= end.
  [[nodiscard]] OverlapChunk describe(std::size_t index, std::size_t first,
                                      std::size_t end) const noexcept {
    const std::size_t count = std::min(chunk, end - first);
    return {.index = index,
            .first = first,
            .count = count,
            .before = std::min(halo, first),
            .after = std::min(halo, end - first - count),
            .buffer = index / devices.size() % buffers,
            .device = devices[index % devices.size()]};
  }
};

/// Chooses and checks everything. @throws errc::invalid_argument, errc::out_of_memory, or the
/// errors of the devices' queries
[[nodiscard]] OverlapPlan plan_overlap(const OverlapEnd* inputs, std::size_t input_count,
                                       const OverlapEnd& output, const OverlapOptions& options);

/// Reduces the plan's memory by one step, if the options leave sizes open: fewer chunks in flight,
/// then smaller chunks. Returns false, and changes nothing, if the plan is as small as is sensible.
[[nodiscard]] bool shrink(OverlapPlan& plan, const OverlapOptions& options);
/// The memory that the plan needs, in words.
[[nodiscard]] std::string describe_memory(const OverlapPlan& plan);

}  // namespace runnel::inline RUNNEL_ABI::detail
