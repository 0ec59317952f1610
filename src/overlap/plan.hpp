// SPDX-License-Identifier: Apache-2.0
/// What overlap() is going to do, worked out and checked before anything moves.
#pragma once

#include <runnel/overlap.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

inline constexpr const char* overlap_operation = "overlap";

struct OverlapPlan {
  std::vector<OverlapEnd> inputs;
  OverlapEnd output;  // `width` is known
  std::vector<Device> devices;
  OverlapStrategy strategy = OverlapStrategy::automatic;
  bool carried = false;  // a range in ordinary memory, which threads carry through pinned memory
  std::size_t halo = 0;
  std::size_t chunk = 0;               // items
  std::size_t slots = 0;               // places in each device's memory
  std::size_t streams = 0;             // of each device
  std::size_t in_flight = 0;           // as asked for or chosen; `slots` may be fewer
  std::optional<std::size_t> items{};  // in all; nothing where sources decide

  [[nodiscard]] bool has_output() const noexcept { return output.kind != OverlapEnd::Kind::none; }
  [[nodiscard]] bool has_source() const noexcept;
  [[nodiscard]] bool has_sink() const noexcept { return output.kind == OverlapEnd::Kind::function; }
  /// Chunks whose steps may be enqueued for one device. Enqueueing ahead of the memory keeps the device's queues filled; it needs ends that
  /// are there all the time.
  [[nodiscard]] std::size_t places() const noexcept { return has_source() || has_sink() || output.filtered ? slots : 2 * slots; }
  /// Elements that a slot holds of an input, halo included, and of the output.
  [[nodiscard]] std::size_t input_elements(std::size_t input) const noexcept { return inputs[input].width * (chunk + 2 * halo); }
  [[nodiscard]] std::size_t output_elements() const noexcept { return output_elements(chunk); }
  [[nodiscard]] std::size_t output_elements(std::size_t count) const noexcept {
    return output.per_chunk != 0 ? output.per_chunk : output.width * count;
  }
};

/// @throws errc::invalid_argument, errc::out_of_memory, or what asking the devices throws
[[nodiscard]] OverlapPlan plan_overlap(const OverlapEnd* inputs, std::size_t input_count, const OverlapEnd& output,
                                       const OverlapOptions& options);

/// Makes the plan need less memory, by one step, where the options leave its sizes open: fewer chunks in flight, then smaller chunks.
/// False, and nothing is changed, when it is as small as is sensible.
[[nodiscard]] bool shrink(OverlapPlan& plan, const OverlapOptions& options);
/// How much the plan needs, in words.
[[nodiscard]] std::string describe_memory(const OverlapPlan& plan);

}  // namespace runnel::inline RUNNEL_ABI::detail
