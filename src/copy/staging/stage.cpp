// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/stage.hpp"

#include "backend.hpp"
#include "base/check.hpp"
#include "copy/staging/cut.hpp"
#include "copy/staging/rings.hpp"
#include "copy/staging/workers.hpp"
#include "device/device_table.hpp"

#include <runnel/detail/staged_sources.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Enqueues a job's pieces between waits for values and writes of values. Workers move the bytes.
class ValueStaging {
 public:
  ValueStaging(const JobPtr& job, native::stream stream) noexcept
      : job_{job}, ring_{job->ring}, stream_{stream} {}

  /// Returns the first failure. The pieces before it may be enqueued.
  [[nodiscard]] backend::status enqueue() {
    const bool to_device = job_->direction() == Direction::to_device;
    backend::status s =
        to_device && !job_->may_read_now ? write(ring_.started(), job_->number) : backend::ok;
    for (uint32_t index = 0; s == backend::ok && index < job_->count(); ++index)
      s = to_device ? send(index) : fetch(index);
    return s == backend::ok && !to_device ? wait_for(ring_.finished(), job_->number) : s;
  }

  /// Call it after a failure. The stream may already wait for the bytes of the last announced
  /// piece. So the workers set the values of announced pieces, in order, without access to user
  /// memory.
  void give_up() noexcept {
    // The stream waits for the end only if all pieces were enqueued.
    job_->stream_waits_for_end = announced_ == job_->count();
    ring_.given_up.store(true, std::memory_order_release);
    ring_.active.fetch_add(1, std::memory_order_relaxed);
    job_->unfinished.fetch_sub(job_->count() - announced_, std::memory_order_acq_rel);
    cancel(*job_);
    staging_workers().wake_one();
  }

 private:
  void announce_piece() {
    job_->announced.store(++announced_, std::memory_order_release);
    staging_workers().wake_one();
  }
  [[nodiscard]] backend::status wait_for(Value value, uint64_t number) noexcept {
    return value.has_reached(number) ? backend::ok
                                     : backend::stream_wait_value(stream_, value.address(),
                                                                  static_cast<uint32_t>(number));
  }
  [[nodiscard]] backend::status write(Value value, uint64_t number) noexcept {
    return backend::stream_write_value(stream_, value.address(), static_cast<uint32_t>(number));
  }
  /// Enqueues a piece to the device. It announces the piece before the stream's wait: streams share
  /// hardware channels, and a full channel blocks the caller until that same wait is over.
  [[nodiscard]] backend::status send(uint32_t index) {
    const uint64_t end = job_->first_piece + index + 1;
    announce_piece();
    if (const backend::status s = wait_for(ring_.filled(), end); s != backend::ok) return s;
    if (const backend::status s = copy_piece(*job_, index, stream_); s != backend::ok) return s;
    // Small pieces share one write.
    unwritten_ += job_->pieces[index].bytes;
    if (index + 1 < job_->count() && unwritten_ < ring_.bytes / pieces_per_ring) return backend::ok;
    unwritten_ = 0;
    return write(ring_.emptied(), end);
  }
  /// Enqueues a piece to the host. It announces the piece last: before that a worker has nothing to
  /// do.
  [[nodiscard]] backend::status fetch(uint32_t index) {
    // The stream completes earlier jobs only after all their pieces have left the ring.
    const uint64_t emptied = job_->pieces[index].allocation.emptied;
    const bool is_empty = emptied <= job_->first_piece;
    if (const backend::status s = is_empty ? backend::ok : wait_for(ring_.emptied(), emptied);
        s != backend::ok)
      return s;
    if (const backend::status s = copy_piece(*job_, index, stream_); s != backend::ok) return s;
    const backend::status s = write(ring_.filled(), job_->first_piece + index + 1);
    if (s == backend::ok) announce_piece();
    return s;
  }

  const JobPtr& job_;
  Ring& ring_;
  const native::stream stream_;
  uint32_t announced_ = 0;
  size_t unwritten_ = 0;  // bytes of pieces that `emptied` does not count yet
};

/// The argument of a host function of stage_with_host_functions().
struct HostStep {
  JobPtr job;
  uint32_t index;
};

void move_piece(void* data) {
  const std::unique_ptr<HostStep> step{static_cast<HostStep*>(data)};
  Job& job = *step->job;
  for (uint32_t part = 0; part < part_count(job.pieces[step->index]); ++part)
    move_unless_cancelled(job, {step->index, part});
}

/// Runs when the stream has completed the job. A later copy through the same ring may wait until
/// the pieces have left the ring.
void release_ring(void* data) {
  const std::unique_ptr<HostStep> step{static_cast<HostStep*>(data)};
  const Job& job = *step->job;
  job.ring.note_completed(job.first_piece + job.count());
  job.ring.release();
}

/// For devices without stream values: a host function for each piece moves its bytes, in stream
/// order.
void stage_with_host_functions(const JobPtr& job, native::stream stream, const char* operation) {
  const auto enqueue = [&](uint32_t index, void (*function)(void*)) {
    auto step = std::make_unique<HostStep>(HostStep{job, index});
    check(backend::launch_host_func(stream, function, step.get()), operation);
    static_cast<void>(step.release());
  };
  try {
    for (uint32_t index = 0; index < job->count(); ++index) {
      if (job->direction() == Direction::to_device) enqueue(index, move_piece);
      check(copy_piece(*job, index, stream), operation);
      if (job->direction() == Direction::to_host) enqueue(index, move_piece);
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

/// Makes and numbers a job. The caller has added 1 to ring.active, which an exception subtracts
/// again. Workers see the job, but ignore it until a piece is announced. Requires: the caller has
/// locked ring.mutex.
[[nodiscard]] JobPtr make_job(Slot& slot, Work work, Ring& ring, bool may_read_now,
                              bool with_values) try {
  const auto job = std::make_shared<Job>(slot, std::move(work), ring, may_read_now);
  if (with_values) staging_workers().add(job);
  job->take_numbers();
  return job;
} catch (...) {
  ring.release();
  throw;
}

void note_sources(const Job& job) noexcept {
  StagedSources* const noted = noted_sources();
  if (noted == nullptr || job.direction() != Direction::to_device) return;
  // One number cannot stand for two rings: then some bytes are missing in the sum.
  const uint32_t* const filled = job.ring.filled().address();
  if (noted->filled != nullptr && noted->filled != filled) return;
  noted->filled = filled;
  noted->end = static_cast<uint32_t>(job.first_piece + job.count());
  noted->bytes += job.work.bytes();
}

}  // namespace

bool StagedSources::are_read() const noexcept {
  return Value{const_cast<uint32_t*>(filled)}.has_reached(end);
}

StagedSources*& noted_sources() noexcept {
  thread_local constinit StagedSources* noted = nullptr;
  return noted;
}

void stage(Slot& slot, Work work, bool may_read_now, const char* operation) {
  // This query can throw. It comes first, while there is nothing to undo.
  const bool with_values = has_stream_values(slot.device);
  for (;;) {
    Ring& ring = staging_rings().ring_for(slot, work, operation);
    const std::lock_guard in_order{ring.mutex};
    // Another thread may have given the ring up while this one waited for the mutex.
    if (ring.given_up.load(std::memory_order_acquire)) {
      ring.release();
      continue;
    }
    const JobPtr job = make_job(slot, std::move(work), ring, may_read_now, with_values);
    if (!with_values) return stage_with_host_functions(job, slot.handle, operation);
    ValueStaging staging{job, slot.handle};
    const backend::status s = staging.enqueue();
    if (s != backend::ok) staging.give_up();
    staging_workers().finish_one(job);
    check(s, operation);
    return note_sources(*job);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
