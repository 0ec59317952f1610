// SPDX-License-Identifier: Apache-2.0
/// The threads that move the parts of staged copies.
#pragma once

#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "copy/staging/job.hpp"

#include <runnel/config.hpp>

#include <cstdint>
#include <deque>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

class StagingWorkers {
 public:
  /// Starts `count` threads, or as many as the system has; they run until the process ends. False
  /// if there is none at all.
  [[nodiscard]] bool start(int count) noexcept;
  void add(const JobPtr& job);
  /// One of the job's pieces is moved, or all of them are enqueued. The last call closes the job.
  void finish_one(const JobPtr& job);
  /// Wakes one worker, if one sleeps: there may be something to do.
  void rouse();
  /// Cancels the stream's jobs: after the return no worker touches the user's memory of these. For
  /// a stream that cannot be waited for.
  void cancel_all(std::uint64_t stream_id) noexcept;
  /// The same for all jobs of a device.
  void cancel_all_of(int device) noexcept;
  /// Whether the device has jobs that are not cancelled.
  [[nodiscard]] bool has_work_of(int device) noexcept;

 private:
  /// What a worker found when it looked.
  struct Found {
    JobPtr job;  // null: there is nothing to move now
    Part part{};
    bool has_more = false;  // there are other parts, to move or to watch for
    bool watches = false;   // this worker is the one that keeps looking
  };
  void work();
  [[nodiscard]] Found look(bool must_look);
  [[nodiscard]] JobPtr claim(Part& part);
  void drop(const Job& job) noexcept;
  [[nodiscard]] bool has_many_parts() noexcept;
  template <class Predicate>
  [[nodiscard]] JobPtr find_active(Predicate matches) noexcept;
  void move_part(const JobPtr& job, Part part, bool has_more);
  void watch(sync::Clock::duration unsuccessful);
  void sleep(std::uint32_t seen);

  SpinLock lock_;             // held while the lists are searched or changed
  std::deque<JobPtr> jobs_;   // not closed, in the order of submission
  std::vector<Ring*> rings_;  // with jobs that have pieces which no worker has claimed
  std::uint64_t turns_ = 0;   // jobs added so far
  // a worker keeps looking at the values that devices change
  bool is_watched_ = false;
  sync::Atomic<std::uint32_t> signal_{0};  // changes when there may be something to do
  sync::Atomic<int> sleepers_{0};
};
[[nodiscard]] StagingWorkers& staging_workers();

}  // namespace runnel::inline RUNNEL_ABI::detail
