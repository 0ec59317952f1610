// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/workers.hpp"

#include "base/immortal.hpp"
#include "base/relax.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace runnel::inline RUNNEL_ABI::detail {

using namespace std::chrono_literals;

// Never destroyed: workers are still there when statics die, and the process ends under them.
StagingWorkers& staging_workers() { return immortal<StagingWorkers>(); }

bool StagingWorkers::start(int count) noexcept {
  int started = 0;
  try {
    for (; started < count; ++started) std::thread{[this] { work(); }}.detach();
  } catch (const std::system_error&) {  // no more threads
  } catch (const std::bad_alloc&) {
  }
  return started > 0;
}

void StagingWorkers::add(const JobPtr& job) {
  const std::lock_guard lock{lock_};
  jobs_.push_back(job);
}

/// The first part, in the order of submission, that can be moved now. The jobs' lock is held.
JobPtr StagingWorkers::claim(Part& part) {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [](const JobPtr& job) { return job->claimable(); });
  if (found == jobs_.end()) return nullptr;
  Job& job = **found;
  const std::uint32_t parts = part_count(job, job.piece(job.claimed));
  part = {job.claimed, job.claimed_parts++};
  if (part.number == 0) job.ring.parts_left[(job.first_piece + part.piece) % slots_per_ring].store(parts, std::memory_order_relaxed);
  if (job.claimed_parts == parts) {
    ++job.claimed;
    job.claimed_parts = 0;
  }
  return *found;
}

void StagingWorkers::count_down(const JobPtr& job) {
  if (job->open.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // Only those that the stream waits for: a later job's number may be there already, and must not be taken back.
  if (job->side == Side::to_host && job->finishes) job->ring.finished().set(job->number);
  {
    const std::lock_guard lock{lock_};
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
  }
  job->ring.release();
}

void StagingWorkers::rouse() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) signal_.notify_one();
}

void StagingWorkers::work() {
  using Clock = std::chrono::steady_clock;
  auto last_seen = Clock::now();  // when there was something to do
  for (;;) {
    const std::uint32_t seen = signal_.load(std::memory_order_seq_cst);
    Part part{};
    JobPtr job;
    bool watches = false;
    {
      const std::lock_guard lock{lock_};
      job = claim(part);
      // Devices change values without a word, so one worker keeps looking.
      if (job == nullptr && !jobs_.empty()) watches = !std::exchange(watched_, true);
    }
    if (job != nullptr) {
      rouse();  // somebody else is to look for the next part
      move_unless_cancelled(*job, part);
      const std::uint64_t piece = job->first_piece + part.piece;
      if (job->ring.parts_left[piece % slots_per_ring].fetch_sub(1, std::memory_order_acq_rel) == 1) {
        (job->side == Side::to_device ? job->ring.filled(piece) : job->ring.emptied(piece)).set(Ring::use_of(piece));
        count_down(job);
      }
      last_seen = Clock::now();
      continue;
    }
    const auto unsuccessful = Clock::now() - last_seen;
    if (watches) {
      if (unsuccessful < 2ms)
        for (int i = 0; i < 8; ++i) relax();
      else
        std::this_thread::sleep_for(50us);  // a stream is held up for long
      const std::lock_guard lock{lock_};
      watched_ = false;
    } else if (unsuccessful < 200us) {
      // The others stay awake for a while, since a sleeper takes longer to wake than a part to move.
      for (int i = 0; i < 500 && signal_.load(std::memory_order_acquire) == seen; ++i) relax();
    } else {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      signal_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      last_seen = Clock::now();
    }
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
