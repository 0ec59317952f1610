// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/stage.hpp"

#include "base/check.hpp"
#include "copy/staging/job.hpp"
#include "copy/staging/rings.hpp"
#include "copy/staging/workers.hpp"
#include "device/device_table.hpp"

#include <runnel/detail/backend.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Enqueues a job's pieces with values that the stream waits for and writes, while workers move the bytes.
class ValueStaging {
 public:
  ValueStaging(const JobPtr& job, native::stream stream) noexcept : job_{job}, ring_{job->ring}, stream_{stream} {}

  /// Returns the first failure; pieces up to that one may be enqueued.
  [[nodiscard]] backend::status enqueue(bool may_read_now) {
    const bool to_device = job_->direction == Direction::to_device;
    backend::status s = to_device ? announce_start(may_read_now) : backend::ok;
    for (std::uint32_t index = 0; s == backend::ok && index < job_->count; ++index) s = to_device ? send(index) : fetch(index);
    if (s == backend::ok && !to_device) s = backend::stream_wait_value(stream_, ring_.finished().place(), job_->number);
    return s;
  }

  /// After a failure. The stream may already wait for the bytes of the last announced piece, so the workers set the
  /// values of announced pieces, in order, without touching user memory.
  void give_up() noexcept {
    job_->stream_waits_for_end = announced_ == job_->count;  // the stream waits for the end only if all pieces were enqueued
    ring_.given_up.store(true, std::memory_order_release);
    ring_.active.fetch_add(1, std::memory_order_relaxed);
    job_->unfinished.fetch_sub(job_->count - announced_, std::memory_order_acq_rel);
    cancel(*job_);
    staging_workers().rouse();
  }

 private:
  /// Lets the workers know when the stream has come to the job. With nothing ahead of the job, and earlier jobs of the ring over, the host
  /// may write the number itself.
  [[nodiscard]] backend::status announce_start(bool may_read_now) noexcept {
    if (!may_read_now) return backend::stream_write_value(stream_, ring_.started().place(), job_->number);
    ring_.started().set(job_->number);
    return backend::ok;
  }
  void announce_piece() {
    job_->announced.store(++announced_, std::memory_order_release);
    staging_workers().rouse();
  }
  [[nodiscard]] backend::status wait_for(Value value, std::uint32_t number) noexcept {
    return value.has_reached(number) ? backend::ok : backend::stream_wait_value(stream_, value.place(), number);
  }
  /// To the device. The piece is announced before the stream is made to wait for it: streams share hardware channels, and a full channel
  /// holds the caller until that very wait is over.
  [[nodiscard]] backend::status send(std::uint32_t index) {
    const std::uint64_t piece = job_->first_piece + index;
    announce_piece();
    return copy_between(ring_.filled(piece), Ring::use_of(piece), ring_.emptied(piece), index);
  }
  /// To the host. The piece is announced afterwards: before that there is nothing that a worker could do.
  [[nodiscard]] backend::status fetch(std::uint32_t index) {
    const std::uint64_t piece = job_->first_piece + index;
    const backend::status s = copy_between(ring_.emptied(piece), Ring::use_of(piece) - 1, ring_.filled(piece), index);
    if (s == backend::ok) announce_piece();
    return s;
  }
  /// The stream waits until `before` has reached the number, copies the piece, and says so in `after`.
  [[nodiscard]] backend::status copy_between(Value before, std::uint32_t awaited, Value after, std::uint32_t index) noexcept {
    if (const backend::status s = wait_for(before, awaited); s != backend::ok) return s;
    if (const backend::status s = copy_piece(*job_, index, stream_); s != backend::ok) return s;
    return backend::stream_write_value(stream_, after.place(), Ring::use_of(job_->first_piece + index));
  }

  const JobPtr& job_;
  Ring& ring_;
  const native::stream stream_;
  std::uint32_t announced_ = 0;
};

void stage_with_values(const JobPtr& job, native::stream stream, bool may_read_now, const char* operation) {
  ValueStaging staging{job, stream};
  const backend::status s = staging.enqueue(may_read_now);
  if (s != backend::ok) staging.give_up();
  staging_workers().finish_one(job);
  check(s, operation);
}

/// What a host function of stage_with_host_functions() is about.
struct HostStep {
  JobPtr job;
  std::uint32_t index;
};

void move_piece(void* data) {
  const std::unique_ptr<HostStep> step{static_cast<HostStep*>(data)};
  Job& job = *step->job;
  for (std::uint32_t part = 0; part < part_count(job, job.piece(step->index)); ++part) move_unless_cancelled(job, {step->index, part});
}

/// The stream has passed the job: its buffers are empty, which a later copy through the same ring may ask about.
void release_ring(void* data) {
  const std::unique_ptr<HostStep> step{static_cast<HostStep*>(data)};
  const Job& job = *step->job;
  for (std::uint64_t piece = job.first_piece; piece < job.first_piece + job.count; ++piece)
    job.ring.emptied(piece).set(Ring::use_of(piece));
  job.ring.release();
}

/// For devices without such values: a host function for each piece moves its bytes, in stream order.
void stage_with_host_functions(const JobPtr& job, native::stream stream, const char* operation) {
  const auto enqueue = [&](std::uint32_t index, void (*function)(void*)) {
    auto step = std::make_unique<HostStep>(HostStep{job, index});
    check(backend::launch_host_func(stream, function, step.get()), operation);
    static_cast<void>(step.release());
  };
  try {
    for (std::uint32_t index = 0; index < job->count; ++index) {
      if (job->direction == Direction::to_device) enqueue(index, move_piece);
      check(copy_piece(*job, index, stream), operation);
      if (job->direction == Direction::to_host) enqueue(index, move_piece);
    }
    enqueue(0, release_ring);
  } catch (...) {
    cancel(*job);
    try {
      enqueue(0, release_ring);
    } catch (...) {  // then the ring stays active: its last copy may still be under way
    }
    throw;
  }
}

/// Makes and numbers a job. The caller has added 1 to ring.active; an exception takes it off again. Workers know the job, but leave it
/// alone until a piece is announced. Requires: ring.mutex is held.
[[nodiscard]] JobPtr make_job(Slot& slot, Direction direction, const Transfer& transfer, Ring& ring, bool with_values) try {
  const auto job = std::make_shared<Job>(slot, direction, transfer, ring);
  if (with_values) staging_workers().add(job);
  job->number = ++ring.jobs[direction == Direction::to_host];
  job->first_piece = std::exchange(ring.pieces, ring.pieces + job->count);
  return job;
} catch (...) {
  ring.release();
  throw;
}

}  // namespace

void stage(Slot& slot, const Transfer& transfer, Direction direction, bool may_read_now, const char* operation) {
  const Transfer flat = flattened(transfer);
  const bool with_values = has_stream_values(slot.device);  // asked before the job has a number: if this throws, there is nothing to undo
  for (;;) {
    Ring& ring = staging_rings().ring_for(slot, flat, operation);
    const std::lock_guard in_order{ring.mutex};
    if (ring.given_up.load(std::memory_order_acquire)) {  // by another thread, while this one waited for the mutex
      ring.release();
      continue;
    }
    const JobPtr job = make_job(slot, direction, flat, ring, with_values);
    if (with_values)
      stage_with_values(job, slot.handle, may_read_now && ring.active.load(std::memory_order_acquire) == 1, operation);
    else
      stage_with_host_functions(job, slot.handle, operation);
    return;
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
