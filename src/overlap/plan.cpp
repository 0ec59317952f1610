// SPDX-License-Identifier: Apache-2.0
#include "overlap/plan.hpp"

#include "base/check.hpp"
#include "copy/transfer.hpp"
#include "device/device_table.hpp"

#include <runnel/memory_kind.hpp>

#include <cstdarg>
#include <cstdio>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

using Kind = OverlapEnd::Kind;

constexpr size_t usual_chunk_bytes = size_t{32} << 20;
// Large enough that the pieces of its staged copies are worth their cost.
constexpr size_t staged_chunk_bytes = size_t{128} << 20;
// The fixed cost of a smaller transfer exceeds the cost of its bytes.
constexpr size_t smallest_chunk_bytes = size_t{1} << 20;
// In and out. One smaller staged copy does not keep the workers busy.
constexpr size_t smallest_staged_for_b = size_t{64} << 20;
// The number of chunks of a small input, so that copies and computation can overlap.
constexpr size_t usual_chunks = 16;
// One is copied in, one is computed, one is copied out, and one is spare.
constexpr size_t usual_in_flight = 4;
constexpr size_t largest = std::numeric_limits<size_t>::max();

[[noreturn, gnu::format(printf, 1, 2)]] void refuse(const char* format, ...) {
  char reason[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  throw_invalid_argument(overlap_operation, reason);
}

size_t divided_up(size_t a, size_t b) noexcept { return a / b + (a % b != 0 ? 1 : 0); }

/// a * b, or `largest` if the product overflows.
size_t times(size_t a, size_t b) noexcept { return b != 0 && a > largest / b ? largest : a * b; }
size_t plus(size_t a, size_t b) noexcept { return a > largest - b ? largest : a + b; }

/// The number of items of the inputs that are ranges; empty if there is none.
std::optional<size_t> count_items(const std::vector<OverlapEnd>& inputs) {
  std::optional<size_t> items;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OverlapEnd& end = inputs[i];
    if (end.kind != Kind::range) continue;
    if (end.data == nullptr && end.size != 0)
      refuse("input %zu is null, with a size of %zu", i, end.size);
    if (end.size % end.width != 0)
      refuse("input %zu has %zu %s, which are no whole rows of %zu", i, end.size, unit_of(end),
             end.width);
    const size_t here = end.size / end.width;
    if (items && *items != here)
      refuse("the inputs have %zu and %zu items; all need as many", *items, here);
    items = here;
  }
  return items;
}

void check_output_range(OverlapPlan& plan) {
  OverlapEnd& out = plan.output;
  if (out.data == nullptr && out.size != 0)
    refuse("the output is null, with a size of %zu", out.size);
  const bool exact = !out.filtered && out.per_chunk == 0 && plan.items.has_value();
  if (out.width == 0) {
    out.width = 1;
    if (exact && *plan.items != 0) {
      if (out.size == 0 || out.size % *plan.items != 0)
        refuse(
            "the output has %zu %s for %zu items, which is no whole number for each; see "
            "by_rows(), per_chunk() and no_output",
            out.size, unit_of(out), *plan.items);
      out.width = out.size / *plan.items;
    }
  }
  if (exact && (*plan.items > largest / out.width || out.size != *plan.items * out.width))
    refuse("the output has %zu %s, but %zu items of %zu each are written", out.size, unit_of(out),
           *plan.items, out.width);
}

/// Refuses an output that a chunk would write before another chunk has read the same memory as its
/// input.
void check_same_memory(const OverlapPlan& plan) {
  const OverlapEnd& out = plan.output;
  if (out.kind != Kind::range) return;
  const auto range_of = [](const OverlapEnd& end) {
    return Range{end.data, end.size * end.element_bytes};
  };
  for (const OverlapEnd& in : plan.inputs) {
    if (in.kind != Kind::range || !do_overlap(range_of(in), range_of(out))) continue;
    const bool in_step = in.data == out.data &&
                         in.width * in.element_bytes == out.width * out.element_bytes &&
                         out.per_chunk == 0;
    if (!in_step || out.filtered)
      refuse("the output overlaps an input, which would be written before it is read");
    if (plan.halo != 0)
      refuse("the output is an input, whose halo would be written before it is read");
  }
}

void choose_devices(OverlapPlan& plan, const OverlapOptions& options) {
  plan.devices = options.devices;
  if (plan.devices.empty()) plan.devices.push_back(Device::current());
  for (const Device device : plan.devices) require_device(device.ordinal(), overlap_operation);
  for (auto each = plan.devices.begin(); each != plan.devices.end(); ++each)
    if (std::find(plan.devices.begin(), each, *each) != each)
      refuse("device %d is named twice", each->ordinal());
}

/// Bytes of the buffers for a chunk of `items` items.
size_t chunk_buffer_bytes(const OverlapPlan& plan, size_t items) noexcept {
  const size_t with_halo = plus(items, times(2, plan.halo));
  size_t bytes = plan.output.filtered ? sizeof(size_t) : 0;
  for (const OverlapEnd& in : plan.inputs)
    bytes = plus(bytes, times(times(with_halo, in.width), in.element_bytes));
  const size_t out =
      plan.output.per_chunk != 0 ? plan.output.per_chunk : times(items, plan.output.width);
  return plus(bytes, times(out, plan.output.element_bytes));
}

/// Whether a range is in pageable memory, so that its copies must be staged.
bool any_staged(const OverlapPlan& plan) {
  if (plan.devices[0].can_use_host_page_tables()) return false;
  const auto is_pageable = [](const OverlapEnd& end) {
    if (end.kind != Kind::range || end.size == 0) return false;
    return (end.memory ? *end.memory : pointer_info(end.data).kind) == MemoryKind::pageable;
  };
  return is_pageable(plan.output) || std::ranges::any_of(plan.inputs, is_pageable);
}

/// Bytes of all chunk buffers of one device.
size_t device_bytes(const OverlapPlan& plan) noexcept {
  return times(chunk_buffer_bytes(plan, plan.chunk), plan.buffers);
}

/// Bytes of the largest item of an input, or of the output elements for one item.
size_t item_bytes(const OverlapPlan& plan) noexcept {
  size_t bytes =
      plan.output.per_chunk != 0 ? 1 : times(plan.output.width, plan.output.element_bytes);
  for (const OverlapEnd& in : plan.inputs)
    bytes = std::max(bytes, times(in.width, in.element_bytes));
  return bytes;
}

size_t usual_chunk(const OverlapPlan& plan) noexcept {
  const size_t item = item_bytes(plan);
  const size_t chunk = divided_up(plan.staged ? staged_chunk_bytes : usual_chunk_bytes, item);
  if (!plan.items) return chunk;
  return std::min(chunk, std::max(divided_up(*plan.items, usual_chunks),
                                  divided_up(smallest_chunk_bytes, item)));
}

void count_buffers(OverlapPlan& plan) noexcept {
  plan.buffers = plan.in_flight;
  if (plan.items)
    plan.buffers = std::min(plan.buffers,
                            divided_up(divided_up(*plan.items, plan.chunk), plan.devices.size()));
}

/// Whether the output is large enough for the elements that all chunks add.
bool has_room_for_chunks(const OverlapPlan& plan) noexcept {
  const OverlapEnd& out = plan.output;
  if (!plan.items || out.kind != Kind::range || out.per_chunk == 0 || out.filtered) return true;
  return times(divided_up(*plan.items, plan.chunk), out.per_chunk) <= out.size;
}

/// Takes the sizes that the options set, and chooses the others according to the data and the
/// devices' memory.
void choose_sizes(OverlapPlan& plan, const OverlapOptions& options) {
  plan.in_flight = options.in_flight != 0 ? options.in_flight : usual_in_flight;
  plan.chunk = options.chunk != 0 ? options.chunk : usual_chunk(plan);
  if (plan.items) plan.chunk = std::min(plan.chunk, std::max<size_t>(1, *plan.items));
  count_buffers(plan);
  // The limit is the total memory, not the free memory: memory that a pool keeps, or whose free is
  // enqueued, can be allocated too.
  size_t memory = largest;
  for (const Device device : plan.devices)
    memory = std::min(memory, total_memory(device.ordinal()));
  // The other half is for the function and the rest of the program.
  while (device_bytes(plan) > memory / 2 && shrink(plan, options)) {
  }
  if (device_bytes(plan) <= memory) return;
  throw_formatted(errc::out_of_memory, overlap_operation, backend::ok,
                  "%s do not fit into the %zu bytes of a device's memory",
                  describe_memory(plan).c_str(), memory);
}

void choose_streams(OverlapPlan& plan, const OverlapOptions& options) {
  plan.strategy = options.strategy;
  if (plan.strategy == OverlapStrategy::automatic)
    plan.strategy = choose_overlap_strategy(plan.devices[0], chunk_buffer_bytes(plan, plan.chunk),
                                            plan.buffers, plan.staged);
  plan.chunk_streams =
      options.streams != 0 ? std::min(options.streams, plan.buffers) : plan.buffers;
  plan.streams = plan.strategy == OverlapStrategy::copy_compute_copy ? 3 : plan.chunk_streams;
}

}  // namespace

bool OverlapPlan::has_source() const noexcept {
  return std::ranges::any_of(inputs,
                             [](const OverlapEnd& end) { return end.kind == Kind::function; });
}

OverlapPlan plan_overlap(const OverlapEnd* inputs, size_t input_count, const OverlapEnd& output,
                         const OverlapOptions& options) {
  OverlapPlan plan;
  plan.inputs.assign(inputs, inputs + input_count);
  plan.output = output;
  plan.halo = options.halo;
  for (OverlapEnd& end : plan.inputs)
    if (end.width == 0) end.width = 1;
  plan.items = count_items(plan.inputs);
  // No chunk has more neighbours than there are items.
  if (plan.items && plan.halo > *plan.items) plan.halo = *plan.items;
  if (output.kind == Kind::range) check_output_range(plan);
  check_same_memory(plan);
  choose_devices(plan, options);
  plan.staged = any_staged(plan);
  choose_sizes(plan, options);
  if (!has_room_for_chunks(plan))
    refuse("the output has %zu %s, but %zu chunks of %zu each are written", plan.output.size,
           unit_of(plan.output), divided_up(*plan.items, plan.chunk), plan.output.per_chunk);
  choose_streams(plan, options);
  return plan;
}

bool shrink(OverlapPlan& plan, const OverlapOptions& options) {
  constexpr size_t enough_to_overlap = 2;
  OverlapPlan smaller = plan;
  smaller.chunk =
      std::max(divided_up(plan.chunk, 2), divided_up(smallest_chunk_bytes, item_bytes(plan)));
  const bool fewer = options.in_flight == 0 && plan.buffers > 1;
  const bool smaller_chunks =
      options.chunk == 0 && smaller.chunk < plan.chunk && has_room_for_chunks(smaller);
  if (!fewer && !smaller_chunks) return false;

  // Short data may need fewer buffers than chunks in flight were planned.
  if (options.in_flight == 0) smaller.in_flight = plan.buffers;
  if (fewer && (plan.buffers > enough_to_overlap || !smaller_chunks)) {
    smaller.chunk = plan.chunk;
    --smaller.in_flight;
  }
  count_buffers(smaller);
  choose_streams(smaller, options);
  plan = std::move(smaller);
  return true;
}

std::string describe_memory(const OverlapPlan& plan) {
  const size_t bytes = chunk_buffer_bytes(plan, plan.chunk);
  if (bytes == largest)
    return "chunks of " + std::to_string(plan.chunk) + " items, larger than any memory,";
  return std::to_string(plan.buffers) + " chunks of " + std::to_string(bytes) +
         " bytes, in and out,";
}

}  // namespace detail

OverlapStrategy choose_overlap_strategy(Device device, size_t chunk_bytes, size_t in_flight,
                                        bool pageable_memory) {
  const size_t least_for_b =
      pageable_memory ? detail::smallest_staged_for_b : detail::smallest_chunk_bytes;
  return in_flight > 1 && chunk_bytes >= least_for_b && device.async_engine_count() > 1
             ? OverlapStrategy::copy_compute_copy
             : OverlapStrategy::stream_per_chunk;
}

}  // namespace runnel::inline RUNNEL_ABI
