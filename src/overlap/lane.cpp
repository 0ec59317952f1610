// SPDX-License-Identifier: Apache-2.0
#include "overlap/lane.hpp"

#include "base/check.hpp"
#include "overlap/streams.hpp"
#include "stream/host_functions.hpp"
#include "stream/slots.hpp"

#include <runnel/current.hpp>

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

/// Host functions launched and copies staged during its life tell the chunk when they fail.
class Labelled {
 public:
  explicit Labelled(std::size_t chunk) noexcept : before_{std::exchange(host_function_label, chunk + 1)} {}
  Labelled(const Labelled&) = delete;
  Labelled& operator=(const Labelled&) = delete;
  ~Labelled() { host_function_label = before_; }

 private:
  std::uint64_t before_;
};

void mark(const std::unique_ptr<OverlapPlace::Marks>& marks, TimedEvent OverlapPlace::Marks::*which, StreamRef stream) {
  if (marks != nullptr) stream.record_event((*marks).*which);
}

/// Waits for the stream. The first time it may say what made its way to the caller already, or came from a chunk after the one that did;
/// or the call failed, and works the next time.
[[nodiscard]] bool has_ended(StreamRef stream) noexcept {
  for (int attempt = 0; attempt < 3; ++attempt) try {
      stream.synchronize();
      return true;
    } catch (...) {
    }
  return false;
}

[[nodiscard]] std::byte* bytes_at(void* data, std::size_t bytes) noexcept { return static_cast<std::byte*>(data) + bytes; }

}  // namespace

OverlapLane::OverlapLane(const OverlapPlan& plan, Device device, bool record_times, OverlapClock::time_point start)
    : plan_{plan},
      device_{device},
      policy_{default_pageable()},
      by_step_{plan.strategy == OverlapStrategy::copy_compute_copy},
      places_(plan.places()) {
  for (std::size_t i = 0; i < plan.streams; ++i) streams_.push_back(take_overlap_stream(device));
  try {
    make_events(record_times);
    allocate();
    if (record_times && !streams_.empty()) match_clocks(start);
  } catch (...) {
    drop_memory();
    release();
    throw;
  }
}

void OverlapLane::make_events(bool record_times) {
  // Where threads carry the bytes, they need the cores.
  const EventOptions waiting{.blocking_wait = plan_.carried};
  for (OverlapPlace& place : places_) {
    for (Event* event : {&place.counted, &place.returned}) *event = Event{waiting};
    if (record_times) place.marks = std::make_unique<OverlapPlace::Marks>();
  }
}

/// All at the beginning: memory that a run before this one gave back is still the runtime's then, until something is waited for.
void OverlapLane::allocate() try {
  allocate_on_device();
  allocate_on_host();
} catch (const Error& error) {
  if (error.code() != errc::out_of_memory) throw;
  throw OverlapShortage{error.operation(), error.native_code(), error.native_name()};
} catch (const std::bad_alloc&) {
  throw OverlapShortage{};
}

void OverlapLane::allocate_on_device() {
  slots_.reserve(plan_.slots);
  for (std::size_t s = 0; s < plan_.slots; ++s) {
    const StreamRef stream = steps(s).in;
    Slot& slot = slots_.emplace_back();
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i)
      slot.in.emplace_back(bytes_for(plan_.input_elements(i), plan_.inputs[i].element_bytes), stream);
    if (plan_.has_output()) slot.out.emplace(bytes_for(plan_.output_elements(), plan_.output.element_bytes), stream);
    if (plan_.output.filtered) slot.count.emplace(1, stream);
  }
}

void OverlapLane::allocate_on_host() {
  for (OverlapPlace& place : places_) {
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i)
      place.in.emplace_back(
          plan_.inputs[i].kind == OverlapEnd::Kind::function ? bytes_for(plan_.input_elements(i), plan_.inputs[i].element_bytes) : 0);
    if (plan_.has_sink()) place.out = PinnedBuffer<std::byte>{bytes_for(plan_.output_elements(), plan_.output.element_bytes)};
    if (plan_.output.filtered) place.count = PinnedBuffer<std::size_t>{1};
  }
}

OverlapLane::~OverlapLane() { release(); }

void OverlapLane::release() noexcept {
  bool all_well = true;
  if (!finished_)
    for (const Stream& stream : streams_) all_well = has_ended(stream) && all_well;
  if (!all_well) free_after_all_streams();
  slots_.clear();
  if (all_well)
    for (Stream& stream : streams_) keep_overlap_stream(std::move(stream));
}

/// A stream that could not be waited for may still use what the order of another one would free.
void OverlapLane::free_after_all_streams() noexcept try {
  for (Slot& slot : slots_)
    for (const Stream& user : streams_) {
      for (auto& in : slot.in) in.record_stream(user);
      if (slot.out) slot.out->record_stream(user);
      if (slot.count) slot.count->record_stream(user);
    }
} catch (...) {
  static_cast<void>(new (std::nothrow) std::vector<Slot>{std::move(slots_)});  // then it stays with the runtime
}

void OverlapLane::finish() {
  for (const Stream& stream : streams_) stream.synchronize();
  finished_ = true;
}

/// Finds a mark in a stream and the host's time of it, so that both kinds of times fit together. The mark lies between two looks at the
/// clock, which a busy machine may hold far apart: so the closest of some tries.
void OverlapLane::match_clocks(OverlapClock::time_point start) {
  auto closest = OverlapClock::duration::max();
  for (int i = 0; i < 20 && closest > 30us; ++i) {
    TimedEvent now;
    const auto before = OverlapClock::now();
    now.record(streams_[0]);
    now.synchronize();
    const auto apart = OverlapClock::now() - before;
    if (apart >= closest) continue;
    closest = apart;
    zero_at_ = before + apart / 2 - start;
    zero_ = std::move(now);
  }
}

OverlapLane::Steps OverlapLane::steps(std::size_t n) const noexcept {
  if (by_step_) return {streams_[0], streams_[1], streams_[2]};
  const StreamRef stream = streams_[n % streams_.size()];
  return {stream, stream, stream};
}

void OverlapLane::copy_in(const OverlapPlace& here, Slot& memory, StreamRef stream) const {
  const OverlapChunk& chunk = *here.chunk;
  for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
    const OverlapEnd& end = plan_.inputs[i];
    const std::size_t item = end.width * end.element_bytes;
    const bool source = end.kind == OverlapEnd::Kind::function;
    const void* const from = source ? here.in[i].data() : bytes_at(end.data, (chunk.first - chunk.before) * item);
    copy_known(stream, memory.in[i].data(), MemoryKind::device, from, source ? MemoryKind::pinned : end.memory,
               (chunk.before + chunk.count + chunk.after) * item, policy_);
  }
}

void OverlapLane::compute(OverlapPlace& here, Slot& memory, StreamRef stream, const OverlapFunction& function) const {
  const OverlapChunk& chunk = *here.chunk;
  std::vector<void*> in;
  std::vector<std::size_t> elements;
  for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
    in.push_back(memory.in[i].data());
    elements.push_back((chunk.before + chunk.count + chunk.after) * plan_.inputs[i].width);
  }
  OverlapBuffers buffers{in.data(), elements.data(), nullptr, 0, nullptr};
  if (memory.out) {
    buffers.out = memory.out->data();
    buffers.out_elements = plan_.output_elements(chunk.count);
  }
  if (memory.count) {
    buffers.count = memory.count->data();
    fill_bytes(stream, buffers.count, 0, sizeof(std::size_t));
  }
  const StreamGuard with{stream};
  function.run(function.function, stream, buffers, chunk);
}

void OverlapLane::copy_out(OverlapPlace& here, Slot& memory, StreamRef stream) const {
  if (!memory.out || here.out_elements == 0) return;
  const OverlapEnd& end = plan_.output;
  void* const to = plan_.has_sink() ? here.out.data() : bytes_at(end.data, here.out_first * end.element_bytes);
  copy_known(stream, to, plan_.has_sink() ? MemoryKind::pinned : end.memory, memory.out->data(), MemoryKind::device,
             here.out_elements * end.element_bytes, policy_);
}

void OverlapLane::submit(std::size_t n, const OverlapFunction& function) {
  using Marks = OverlapPlace::Marks;
  OverlapPlace& here = place(n);
  Slot& memory = slot(n);
  const Steps step = steps(n);
  const Labelled label{here.chunk->index};
  // What had the slot before may still be under way, if more is enqueued than there are slots.
  const OverlapPlace* const before = n >= slots_.size() && places_.size() > slots_.size() ? &place(n - slots_.size()) : nullptr;

  if (before != nullptr && by_step_) step.in.wait_event(before->computed);
  if (before != nullptr && !by_step_ && steps(n - slots_.size()).in != step.in) step.in.wait_event(before->returned);
  mark(here.marks, &Marks::arriving, step.in);
  copy_in(here, memory, step.in);
  mark(here.marks, &Marks::arrived, step.in);

  if (by_step_) {
    step.in.record_event(here.arrived);
    step.compute.wait_event(here.arrived);
    if (before != nullptr && memory.out) step.compute.wait_event(before->returned);
  }
  mark(here.marks, &Marks::computing, step.compute);
  compute(here, memory, step.compute, function);
  mark(here.marks, &Marks::computed, step.compute);

  if (by_step_) {
    step.compute.record_event(here.computed);
    step.out.wait_event(here.computed);
  }
  if (memory.count) {
    copy(step.out, here.count, std::as_const(*memory.count));
    step.out.record_event(here.counted);
    return;
  }
  mark(here.marks, &Marks::leaving, step.out);
  copy_out(here, memory, step.out);
  mark(here.marks, &Marks::left, step.out);
  step.out.record_event(here.returned);
}

void OverlapLane::submit_filtered(std::size_t n) {
  using Marks = OverlapPlace::Marks;
  OverlapPlace& here = place(n);
  here.counted.synchronize();
  deliver_failures(n);
  const std::size_t room = plan_.output_elements(here.chunk->count);
  here.out_elements = here.count[0];
  if (here.out_elements > room) {
    char reason[160];
    std::snprintf(reason, sizeof reason, "the function says that it wrote %zu elements, where there is room for %zu", here.out_elements,
                  room);
    throw_error(errc::invalid_argument, overlap_operation, reason);
  }
  if (!plan_.has_sink() && here.out_elements > plan_.output.size - here.out_first)
    throw_error(errc::invalid_argument, overlap_operation, "the output is too small for what the filter lets through");
  const StreamRef stream = steps(n).out;
  const Labelled label{here.chunk->index};
  mark(here.marks, &Marks::leaving, stream);
  copy_out(here, slot(n), stream);
  mark(here.marks, &Marks::left, stream);
  stream.record_event(here.returned);
}

void OverlapLane::wait(std::size_t n) {
  OverlapPlace& here = place(n);
  here.returned.synchronize();
  deliver_failures(n);
}

void OverlapLane::deliver_failures(std::size_t n) {
  const Steps step = steps(n);
  for (const StreamRef stream : {step.in, step.compute, step.out}) deliver_failure_of(live_slot(stream), place(n).chunk->index + 1);
}

void OverlapLane::read_times(OverlapPlace& here) const {
  if (here.marks == nullptr) return;
  const auto at = [&](const TimedEvent& event) { return event - zero_ + zero_at_; };
  const OverlapPlace::Marks& m = *here.marks;
  here.times.copy_in = {at(m.arriving), at(m.arrived)};
  here.times.compute = {at(m.computing), at(m.computed)};
  if (plan_.has_output()) here.times.copy_out = {at(m.leaving), at(m.left)};
}

}  // namespace runnel::inline RUNNEL_ABI::detail
