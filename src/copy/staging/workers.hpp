// SPDX-License-Identifier: Apache-2.0
/// The threads that move the parts of staged copies.
#pragma once

#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "copy/staging/job.hpp"

#include <runnel/config.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

class StagingWorkers {
 public:
  /// Starts `count` threads, or as many as the system allows. They run until the process ends.
  /// Returns false if no thread started.
  [[nodiscard]] bool start(int count) noexcept;
  void add(const JobPtr& job);
  /// Call it when one of the job's pieces is moved, and once when all of them are enqueued. The
  /// last call closes the job.
  void finish_one(const JobPtr& job);
  /// Wakes one worker, if any sleeps: there may be work.
  void wake_one();
  /// A job of the stream, or of the device, that is not cancelled. Null if there is none.
  template <class T>
  [[nodiscard]] JobPtr find_active(const T Job::* owner, T value) noexcept {
    const std::lock_guard lock{lock_};
    const auto found = std::ranges::find_if(jobs_, [&](const JobPtr& each) {
      return (*each).*owner == value && !each->cancelled.load(std::memory_order_relaxed);
    });
    return found == jobs_.end() ? nullptr : *found;
  }
  /// Cancels its jobs: after the return no worker accesses their user memory. For a stream that
  /// cannot be waited for.
  template <class T>
  void cancel_all(const T Job::* owner, T value) noexcept {
    while (const JobPtr job = find_active(owner, value)) cancel(*job);
  }

 private:
  /// The result of a worker's search for work.
  struct Found {
    JobPtr job;  // null if there is nothing to move now
    Part part{};
    bool has_more = false;  // there are other parts, to move now or later
    bool polls = false;     // this worker is the one that polls the values
  };
  void work();
  [[nodiscard]] Found look(bool must_look);
  [[nodiscard]] JobPtr claim(Part& part);
  void drop(const Job& job) noexcept;
  bool has_many_parts() noexcept;
  void move_part(const JobPtr& job, Part part, bool has_more);
  void pause_polling(sync::Clock::duration unsuccessful);
  void sleep(uint32_t seen);

  SpinLock lock_;                     // guards the lists
  std::deque<JobPtr> jobs_;           // all that are not closed, in the order of submission
  std::vector<Ring*> rings_;          // those with unclaimed jobs
  uint64_t turns_ = 0;                // jobs added so far
  bool is_polled_ = false;            // a worker polls the values that devices change
  sync::Atomic<uint32_t> signal_{0};  // changes when there may be work
  sync::Atomic<int> sleepers_{0};
};
[[nodiscard]] StagingWorkers& staging_workers();

}  // namespace runnel::inline RUNNEL_ABI::detail
