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

/// With values that streams wait for and write: workers move the bytes.
/// A piece for the device is announced to the workers before the stream is told to wait for it, since what the stream is told next may
/// have to wait for room behind that very wait: streams share the device's channels, and those hold so many commands and no more.
void stage_with_values(const JobPtr& job, native::stream stream, bool idle, const char* operation) {
  Ring& ring = job->ring;
  const bool to_device = job->side == Side::to_device;
  std::uint32_t announced = 0;
  backend::status s = backend::ok;
  const auto all_well = [&](backend::status result) { return (s = result) == backend::ok; };
  const auto announce = [&] {
    job->enqueued.store(++announced, std::memory_order_release);
    staging_workers().rouse();
  };
  // All jobs that used the ring before are over, so that the host may write the number as well.
  if (to_device && idle) ring.started().set(job->number);
  if (!to_device || idle || all_well(backend::stream_write_value(stream, ring.started().place(), job->number))) {
    for (std::uint32_t index = 0; index < job->count; ++index) {
      const std::uint64_t piece = job->first_piece + index;
      const std::uint32_t use = Ring::use_of(piece);
      if (to_device) announce();
      const Value before = to_device ? ring.filled(piece) : ring.emptied(piece);
      const Value after = to_device ? ring.emptied(piece) : ring.filled(piece);
      const std::uint32_t awaited = to_device ? use : use - 1;
      if (!(before.reached(awaited) || all_well(backend::stream_wait_value(stream, before.place(), awaited))) ||
          !all_well(copy_piece(*job, index, stream)) || !all_well(backend::stream_write_value(stream, after.place(), use)))
        break;
      if (!to_device) announce();
    }
    if (s == backend::ok && !to_device) s = backend::stream_wait_value(stream, ring.finished().place(), job->number);
  }
  if (s != backend::ok) {
    // The stream may already wait for the bytes of the last piece: workers let it go on, in their turn, without moving any. For the end
    // it can only wait when everything before was enqueued.
    job->finishes = announced == job->count;
    ring.given_up.store(true, std::memory_order_release);
    ring.active.fetch_add(1, std::memory_order_relaxed);
    job->open.fetch_sub(job->count - announced, std::memory_order_acq_rel);
    cancel(*job);
    staging_workers().rouse();
  }
  staging_workers().count_down(job);
  check(s, operation);
}

/// Without such values: a host function a piece moves the bytes, in the stream's own order.
void stage_with_host_functions(const JobPtr& job, native::stream stream, const char* operation) {
  struct Step {
    JobPtr job;
    std::uint32_t index;
  };
  const auto enqueue = [&](std::uint32_t index, void (*function)(void*)) {
    auto step = std::make_unique<Step>(Step{job, index});
    check(backend::launch_host_func(stream, function, step.get()), operation);
    static_cast<void>(step.release());
  };
  const auto run_move = [](void* data) {
    const std::unique_ptr<Step> step{static_cast<Step*>(data)};
    Job& work = *step->job;
    for (std::uint32_t part = 0; part < part_count(work, work.piece(step->index)); ++part) move_unless_cancelled(work, {step->index, part});
  };
  const auto run_release = [](void* data) {
    const std::unique_ptr<Step> step{static_cast<Step*>(data)};
    const Job& done = *step->job;
    for (std::uint32_t index = 0; index < done.count; ++index)  // what a later copy of the same ring may ask
      done.ring.emptied(done.first_piece + index).set(Ring::use_of(done.first_piece + index));
    step->job->ring.release();
  };
  try {
    for (std::uint32_t index = 0; index < job->count; ++index) {
      if (job->side == Side::to_device) enqueue(index, run_move);
      check(copy_piece(*job, index, stream), operation);
      if (job->side == Side::to_host) enqueue(index, run_move);
    }
    enqueue(0, run_release);
  } catch (...) {
    cancel(*job);
    try {
      enqueue(0, run_release);
    } catch (...) {  // then the ring stays in use: its last copy may still be on its way
    }
    throw;
  }
}

/// A job for a ring that counts it as active already; if none can be made, it no longer does. The workers know the job, but leave it alone
/// until a piece is announced. Requires: ring.mutex is held.
[[nodiscard]] JobPtr make_job(Slot& slot, Side side, const Transfer& transfer, Ring& ring, bool with_values) try {
  const auto job = std::make_shared<Job>(slot, side, flattened(transfer), ring);
  if (with_values) staging_workers().add(job);
  job->number = ++ring.jobs;
  job->first_piece = std::exchange(ring.pieces, ring.pieces + job->count);
  return job;
} catch (...) {
  ring.release();
  throw;
}

}  // namespace

void stage(Slot& slot, const Transfer& transfer, Side side, bool idle, const char* operation) {
  const bool with_values = has_stream_values(slot.device);  // asked first: from the numbering on, nothing may fail unseen
  for (;;) {
    Ring& ring = staging_rings().ring_for(slot, transfer.width * transfer.height, operation);
    const std::lock_guard in_order{ring.mutex};
    if (ring.given_up.load(std::memory_order_acquire)) {  // by another thread, while this one waited for its turn
      ring.release();
      continue;
    }
    const JobPtr job = make_job(slot, side, transfer, ring, with_values);
    if (with_values)
      stage_with_values(job, slot.handle, idle && ring.active.load(std::memory_order_acquire) == 1, operation);
    else
      stage_with_host_functions(job, slot.handle, operation);
    return;
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
