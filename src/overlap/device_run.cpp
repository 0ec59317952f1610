// SPDX-License-Identifier: Apache-2.0
#include "overlap/device_run.hpp"

#include "base/check.hpp"
#include "copy/staging/workers.hpp"
#include "function/host_functions.hpp"
#include "observe/trace_times.hpp"
#include "slot/slots.hpp"

#include <runnel/current.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// While it lives, host functions that this thread launches and copies that it stages have the
/// chunk as their label, so that their errors can be assigned to the chunk.
class ChunkLabel : NotCopied {
 public:
  explicit ChunkLabel(size_t chunk) noexcept
      : before_{std::exchange(host_function_label, chunk + 1)} {}
  ~ChunkLabel() { host_function_label = before_; }

 private:
  uint64_t before_;
};

/// Waits for the stream; returns false if this fails three times. The first attempts may throw an
/// error that the caller has already received, or that belongs to a later chunk.
[[nodiscard]] bool wait_until_idle(StreamRef stream) noexcept {
  for (int attempt = 0; attempt < 3; ++attempt) try {
      stream.synchronize();
      return true;
    } catch (...) {
    }
  return false;
}

[[nodiscard]] std::byte* bytes_at(void* data, size_t bytes) noexcept {
  return static_cast<std::byte*>(data) + bytes;
}

}  // namespace

DeviceRun::DeviceRun(const OverlapPlan& plan, size_t index, bool record_times,
                     OverlapClock::time_point start)
    : plan_{plan},
      stream_per_step_{plan.strategy == OverlapStrategy::copy_compute_copy},
      index_{index},
      device_{plan.devices[index]},
      policy_{default_pageable()},
      records_(plan.max_enqueued()) {
  for (size_t i = 0; i < plan.streams; ++i)
    streams_.emplace_back(device_, StreamOptions{.name = "overlap"});
  // Staging threads need the cores, so waits for events must not spin.
  const EventOptions waiting{.blocking_wait = plan_.staged};
  try {
    for (ChunkRecord& record : records_) {
      for (Event* event : {&record.counted, &record.copied_out}) *event = Event{waiting};
      if (record_times) record.timestamps = std::make_unique<ChunkRecord::Timestamps>();
    }
    allocate();
    if (record_times && !streams_.empty()) match_clocks(start);
  } catch (...) {
    free_buffers();
    release();
    throw;
  }
}

/// Allocates all memory at the beginning: memory that an earlier run has freed can then still be
/// reused, because no wait has returned it to the system.
void DeviceRun::allocate() try {
  allocate_on_device();
  allocate_on_host();
} catch (const Error& error) {
  if (error.code() != errc::out_of_memory) throw;
  throw OverlapShortage{std::current_exception()};
} catch (const std::bad_alloc&) {
  throw OverlapShortage{std::current_exception()};
}

void DeviceRun::allocate_on_device() {
  buffers_.reserve(plan_.buffers);
  for (size_t n = 0; n < plan_.buffers; ++n) {
    const StreamRef stream = steps_of(n).in;
    ChunkBuffers& chunk = buffers_.emplace_back();
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      chunk.in.emplace_back(bytes_for(plan_.input_elements(i), plan_.inputs[i].element_bytes),
                            stream);
    if (plan_.has_output())
      chunk.out.emplace(bytes_for(plan_.output_elements(), plan_.output.element_bytes), stream);
    if (plan_.output.filtered) chunk.count.emplace(1, stream);
    start_copy(n);
  }
}

/// In a run between ranges, enqueues the copy of the n-th chunk to the device as soon as the chunk
/// has its memory: the allocation of the other buffers takes about a millisecond if the device's
/// pool has returned its memory to the system. submit() enqueues the other steps.
void DeviceRun::start_copy(size_t n) noexcept try {
  ChunkRecord& here = records_[n];
  const size_t chunk = index_ + n * plan_.devices.size();
  const size_t first = chunk * plan_.chunk;
  // Two chunks of one stream run one after the other.
  const bool has_own_stream = stream_per_step_ || n < plan_.chunk_streams;
  if (plan_.needs_host() || plan_.staged || here.timestamps != nullptr || !has_own_stream ||
      first >= *plan_.items)
    return;
  if (start_error_ != nullptr) return;
  copies_started_ = n + 1;
  here.chunk.emplace(plan_.describe(chunk, first, *plan_.items));
  copy_in(here, buffers_[n], steps_of(n).in);
} catch (...) {
  start_error_ = std::current_exception();
}

void DeviceRun::allocate_on_host() {
  for (ChunkRecord& record : records_) {
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      record.in.emplace_back(plan_.inputs[i].kind == OverlapEnd::Kind::function
                                 ? bytes_for(plan_.input_elements(i), plan_.inputs[i].element_bytes)
                                 : 0);
    if (plan_.has_sink())
      record.out =
          PinnedBuffer<std::byte>{bytes_for(plan_.output_elements(), plan_.output.element_bytes)};
    if (plan_.output.filtered) record.count = PinnedBuffer<size_t>{1};
  }
}

DeviceRun::~DeviceRun() { release(); }

void DeviceRun::release() noexcept {
  bool all_well = true;
  if (!finished_)
    for (const Stream& stream : streams_) {
      if (wait_until_idle(stream)) continue;
      staging_workers().cancel_all(&Job::stream_id, stream.id());
      all_well = false;
    }
  if (all_well)
    for (const Stream& stream : streams_) key_of(stream).slot->idle_at_end = true;
  else
    record_all_streams();
  buffers_.clear();
}

/// Records all streams as users of all buffers. A stream for which the wait has failed may still
/// use memory that would otherwise be freed in the order of another stream.
void DeviceRun::record_all_streams() noexcept try {
  for (ChunkBuffers& chunk : buffers_)
    for (const Stream& user : streams_) {
      for (auto& in : chunk.in) in.record_stream(user);
      if (chunk.out) chunk.out->record_stream(user);
      if (chunk.count) chunk.count->record_stream(user);
    }
} catch (...) {
  // The memory is leaked.
  static_cast<void>(new (std::nothrow) std::vector<ChunkBuffers>{std::move(buffers_)});
}

void DeviceRun::finish() {
  for (const Stream& stream : streams_) stream.synchronize();
  finished_ = true;
}

/// Determines the host's time of a device event, so that device times and host times have a common
/// origin.
void DeviceRun::match_clocks(OverlapClock::time_point start) {
  auto [zero, time] = detail::match_clocks([&] {
    std::optional<TimedEvent> event{std::in_place, streams_[0]};
    event->synchronize();
    return event;
  });
  origin_ = std::move(*zero);
  origin_time_ = time - start;
}

DeviceRun::Steps DeviceRun::steps_of(size_t n) const noexcept {
  if (stream_per_step_) return {streams_[0], streams_[1], streams_[2]};
  const StreamRef stream = streams_[n % plan_.chunk_streams];
  return {stream, stream, stream};
}

/// Enqueues the copy of the chunk to the device.
void DeviceRun::copy_in(ChunkRecord& here, ChunkBuffers& buffers, StreamRef stream) const {
  const OverlapChunk& chunk = *here.chunk;
  for (size_t i = 0; i < plan_.inputs.size(); ++i) {
    const OverlapEnd& end = plan_.inputs[i];
    const size_t item = end.width * end.element_bytes;
    const bool source = end.kind == OverlapEnd::Kind::function;
    const void* const from =
        source ? here.in[i].data() : bytes_at(end.data, (chunk.first - chunk.before) * item);
    copy_bytes(stream, buffers.in[i].data(), from,
               (chunk.before + chunk.count + chunk.after) * item,
               {.pageable = policy_,
                .to_kind = MemoryKind::device,
                .from_kind = source ? MemoryKind::pinned : end.memory});
  }
  here.record_time(&ChunkRecord::Timestamps::copy_in_end, stream);
  // Directly after the copy, because the computation need not wait for copies of later chunks that
  // may follow on the stream. After the timestamp, so that it covers the timestamp too.
  if (stream_per_step_) stream.record_event(here.copied_in);
}

void DeviceRun::compute(ChunkRecord& here, ChunkBuffers& buffers, StreamRef stream,
                        const OverlapFunction& function) const {
  const OverlapChunk& chunk = *here.chunk;
  std::vector<void*> in;
  std::vector<size_t> elements;
  for (size_t i = 0; i < plan_.inputs.size(); ++i) {
    in.push_back(buffers.in[i].data());
    elements.push_back((chunk.before + chunk.count + chunk.after) * plan_.inputs[i].width);
  }
  OverlapArguments arguments{in.data(), elements.data(), nullptr, 0, nullptr};
  if (buffers.out) {
    arguments.out = buffers.out->data();
    arguments.out_elements = plan_.output_elements(chunk.count);
  }
  if (buffers.count) {
    arguments.count = buffers.count->data();
    fill_bytes(stream, arguments.count, 0, sizeof(size_t));
  }
  const StreamGuard with{stream};
  function.run(function.function, stream, arguments, chunk);
  for (size_t i = 0; i < plan_.inputs.size(); ++i)
    stream.declare_reads(in[i], elements[i] * plan_.inputs[i].element_bytes);
  if (buffers.out)
    stream.declare_writes(arguments.out, arguments.out_elements * plan_.output.element_bytes);
  if (buffers.count) stream.declare_writes(arguments.count, sizeof(size_t));
}

/// The record of the previous chunk in the same buffers, if it may still be in flight; otherwise
/// null. This occurs only if there are more records than buffers: then chunks are enqueued before
/// their buffers are free.
const ChunkRecord* DeviceRun::previous_user(size_t n) const noexcept {
  if (n < buffers_.size() || records_.size() <= buffers_.size()) return nullptr;
  return &records_[(n - buffers_.size()) % records_.size()];
}

void DeviceRun::submit(size_t n, const OverlapFunction& function) {
  using Timestamps = ChunkRecord::Timestamps;
  ChunkRecord& here = record(n);
  ChunkBuffers& buffers = buffers_of(n);
  const Steps step = steps_of(n);
  const ChunkLabel label{here.chunk->index};
  const ChunkRecord* const before = previous_user(n);

  if (before != nullptr && stream_per_step_)
    step.in.wait_event(before->computed);
  else if (before != nullptr && steps_of(n - buffers_.size()).out != step.in)
    step.in.wait_event(before->copied_out);
  here.record_time(&Timestamps::copy_in_begin, step.in);
  if (n >= copies_started_)
    copy_in(here, buffers, step.in);
  else if (n + 1 == copies_started_ && start_error_ != nullptr)
    std::rethrow_exception(start_error_);

  if (stream_per_step_) {
    step.compute.wait_event(here.copied_in);
    if (before != nullptr && buffers.out) step.compute.wait_event(before->copied_out);
  }
  here.record_time(&Timestamps::compute_begin, step.compute);
  compute(here, buffers, step.compute, function);
  here.record_time(&Timestamps::compute_end, step.compute);

  if (stream_per_step_) {
    step.compute.record_event(here.computed);
    step.out.wait_event(here.computed);
  }
  if (buffers.count) {
    copy(step.out, here.count, std::as_const(*buffers.count));
    step.out.record_event(here.counted);
    return;
  }
  copy_out(n);
}

void DeviceRun::copy_out(size_t n) {
  using Timestamps = ChunkRecord::Timestamps;
  ChunkRecord& here = record(n);
  const StreamRef stream = steps_of(n).out;
  const OverlapEnd& end = plan_.output;
  here.record_time(&Timestamps::copy_out_begin, stream);
  if (here.out_elements != 0) {
    const bool sink = plan_.has_sink();
    copy_bytes(stream,
               sink ? here.out.data() : bytes_at(end.data, here.out_first * end.element_bytes),
               buffers_of(n).out->data(), here.out_elements * end.element_bytes,
               {.pageable = policy_,
                .to_kind = sink ? MemoryKind::pinned : end.memory,
                .from_kind = MemoryKind::device});
  }
  here.record_time(&Timestamps::copy_out_end, stream);
  stream.record_event(here.copied_out);
}

void DeviceRun::submit_filtered(size_t n) {
  ChunkRecord& here = record(n);
  here.counted.synchronize();
  deliver_failures(n);
  const size_t room = plan_.output_elements(here.chunk->count);
  here.out_elements = here.count[0];
  if (here.out_elements > room)
    throw_formatted(errc::invalid_argument, overlap_operation, backend::ok,
                    "the function says that it wrote %zu %s, where there is room for %zu",
                    here.out_elements, unit_of(plan_.output), room);
  if (!plan_.has_sink() && here.out_elements > plan_.output.size - here.out_first)
    throw_invalid_argument(overlap_operation,
                           "the output is too small for what the filter lets through");
  const ChunkLabel label{here.chunk->index};
  copy_out(n);
}

void DeviceRun::wait(size_t n) {
  ChunkRecord& here = record(n);
  here.copied_out.synchronize();
  deliver_failures(n);
}

void DeviceRun::deliver_failures(size_t n) {
  const Steps step = steps_of(n);
  for (const StreamRef stream : {step.in, step.compute, step.out})
    deliver_failure(live_slot(stream), record(n).chunk->index + 1);
}

void DeviceRun::read_times(ChunkRecord& here) const {
  if (here.timestamps == nullptr) return;
  const auto at = [&](const TimedEvent& event) { return event - origin_ + origin_time_; };
  const ChunkRecord::Timestamps& m = *here.timestamps;
  here.times.copy_in = {at(m.copy_in_begin), at(m.copy_in_end)};
  here.times.compute = {at(m.compute_begin), at(m.compute_end)};
  if (plan_.has_output()) here.times.copy_out = {at(m.copy_out_begin), at(m.copy_out_end)};
}

}  // namespace runnel::inline RUNNEL_ABI::detail
