// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/workers.hpp"

#include "base/never_destroyed.hpp"
#include "base/relax.hpp"
#include "base/start_thread.hpp"

#include <chrono>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

using namespace std::chrono_literals;

/// How long a worker without work spins before it sleeps: waking up takes longer than moving a
/// part.
constexpr auto spin_time = 200us;

StagingWorkers& staging_workers() { return never_destroyed<StagingWorkers>(); }

bool StagingWorkers::start(int count) noexcept {
  int started = 0;
  while (started < count && start_thread([this] { work(); })) ++started;
  return started > 0;
}

void StagingWorkers::add(const JobPtr& job) {
  const std::lock_guard lock{lock_};
  Ring& ring = job->ring;
  const bool is_new = ring.unclaimed.empty();
  if (is_new) rings_.reserve(rings_.size() + 1);
  jobs_.push_back(job);
  try {
    ring.unclaimed.push_back(job);
  } catch (...) {
    jobs_.pop_back();
    throw;
  }
  if (is_new) rings_.push_back(&ring);
  job->turn = ++turns_;
}

/// Claims the part that was submitted first among those that can be moved now. The pieces of a ring
/// are moved in order, so only its first job matters. Requires: the caller has locked lock_.
JobPtr StagingWorkers::claim(Part& part) {
  Ring* found = nullptr;
  for (Ring* const ring : rings_) {
    const Job& job = *ring->unclaimed.front();
    if ((found == nullptr || job.turn < found->unclaimed.front()->turn) && job.is_claimable())
      found = ring;
  }
  if (found == nullptr) return nullptr;
  JobPtr job = found->unclaimed.front();
  const uint32_t parts = part_count(job->pieces[job->next_piece]);
  part = {job->next_piece, job->next_part++};
  if (part.number == 0)
    found->parts_left(job->first_piece + part.piece).store(parts, std::memory_order_relaxed);
  if (job->next_part == parts) {
    ++job->next_piece;
    job->next_part = 0;
    if (job->next_piece == job->count()) drop(*job);
  }
  return job;
}

/// Removes the job from the unclaimed ones, if it is there. Requires: the caller has locked lock_.
void StagingWorkers::drop(const Job& job) noexcept {
  auto& unclaimed = job.ring.unclaimed;
  const auto found =
      std::ranges::find_if(unclaimed, [&](const JobPtr& each) { return each.get() == &job; });
  if (found == unclaimed.end()) return;
  unclaimed.erase(found);
  if (unclaimed.empty()) rings_.erase(std::ranges::find(rings_, &job.ring));
}

void StagingWorkers::finish_one(const JobPtr& job) {
  if (job->unfinished.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  job->writer.end();
  // A cancelled job skips this: no stream waits for its end, and a later job may already have
  // raised the value.
  if (job->direction() == Direction::to_host && job->stream_waits_for_end)
    job->ring.finished().set(job->number);
  {
    const std::lock_guard lock{lock_};
    jobs_.erase(std::ranges::find(jobs_, job));
    // After a failure some pieces were never announced.
    if (job->cancelled.load(std::memory_order_relaxed)) drop(*job);
  }
  job->ring.release();
}

void StagingWorkers::wake_one() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) signal_.notify_one();
}

/// Whether there is work for several workers, or soon will be.
bool StagingWorkers::has_many_parts() noexcept {
  const std::lock_guard lock{lock_};
  return std::ranges::any_of(rings_, [](const Ring* ring) {
    const Job& job = *ring->unclaimed.front();
    return job.next_piece < job.announced.load(std::memory_order_acquire) &&
           part_count(job.pieces[job.next_piece]) - job.next_part > 2;
  });
}

/// Unless it `must_look`, a worker does not wait for the lock: workers that contend for it slow
/// down the caller that adds a job (128 KiB copies in a row: 2.5 GB/s instead of 15 on an H100).
StagingWorkers::Found StagingWorkers::look(bool must_look) {
  Found found;
  std::unique_lock lock{lock_, std::defer_lock};
  if (must_look)
    lock.lock();
  else if (!lock.try_lock())
    return found;
  found.job = claim(found.part);
  found.has_more = found.job != nullptr && !rings_.empty();
  // A device changes a value without waking a worker, so one worker keeps polling.
  if (found.job == nullptr && !jobs_.empty()) found.polls = !std::exchange(is_polled_, true);
  return found;
}

void StagingWorkers::move_part(const JobPtr& job, Part part, bool has_more) {
  if (has_more) wake_one();
  move_unless_cancelled(*job, part);
  Ring& ring = job->ring;
  const uint64_t piece = job->first_piece + part.piece;
  if (ring.parts_left(piece).fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  ring.note_moved(piece, job->direction());
  finish_one(job);
}

/// Pauses between two polls of the values, for longer if a stream has been blocked for long.
void StagingWorkers::pause_polling(sync::Clock::duration unsuccessful) {
  if (unsuccessful < 2ms)
    for (int i = 0; i < sync::polls(8); ++i) relax();
  else
    sync::sleep_for(50us);
  const std::lock_guard lock{lock_};
  is_polled_ = false;
}

void StagingWorkers::sleep(uint32_t seen) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  signal_.wait(seen, std::memory_order_seq_cst);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void StagingWorkers::work() {
  using Clock = sync::Clock;
  auto last_success = Clock::now();
  for (uint32_t last_seen = 0;;) {
    const uint32_t seen = signal_.load(std::memory_order_seq_cst);
    const bool was_idle_for_long = Clock::now() - last_success >= spin_time;
    const Found found = look(was_idle_for_long);
    // If others find work, this worker probably will, too.
    if (std::exchange(last_seen, seen) != seen) last_success = Clock::now();
    if (found.job != nullptr) {
      move_part(found.job, found.part, found.has_more);
      last_success = Clock::now();
    } else if (found.polls) {
      pause_polling(Clock::now() - last_success);
    } else if (!was_idle_for_long) {
      for (int i = 0; i < sync::polls(500) && signal_.load(std::memory_order_acquire) == seen; ++i)
        relax();
    } else {
      sleep(seen);
      last_success = Clock::now();
      // Waking up takes long, so each worker that wakes up wakes the next one before it looks for
      // work itself.
      if (has_many_parts()) wake_one();
    }
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
