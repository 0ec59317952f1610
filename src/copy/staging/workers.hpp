// SPDX-License-Identifier: Apache-2.0
/// The threads that move the parts of staged copies.
#pragma once

#include "base/spin_lock.hpp"
#include "copy/staging/job.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstdint>
#include <deque>

namespace runnel::inline RUNNEL_ABI::detail {

class StagingWorkers {
 public:
  /// Starts as many threads, or as many of them as there are to be had; they stay until the process ends. False if there is none at all.
  [[nodiscard]] bool start(int count) noexcept;
  void add(const JobPtr& job);
  /// One of the job's pieces is moved, or its enqueueing is over; the last of all closes it.
  void count_down(const JobPtr& job);
  /// There may be something to do: one more worker looks.
  void rouse();

 private:
  void work();
  [[nodiscard]] JobPtr claim(Part& part);

  SpinLock lock_;                         // held for some loads: workers must not sleep over it
  std::deque<JobPtr> jobs_;               // in the order of submission
  bool watched_ = false;                  // one worker looks for what devices change
  std::atomic<std::uint32_t> signal_{0};  // changes when there may be something to do
  std::atomic<int> sleepers_{0};
};
[[nodiscard]] StagingWorkers& staging_workers();

}  // namespace runnel::inline RUNNEL_ABI::detail
