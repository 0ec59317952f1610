// SPDX-License-Identifier: Apache-2.0
/// The host backend's engine: lanes of work, run by as many threads as there are lanes with something to run.
///
/// A lane's tasks are numbered from 1 in the order of submission. `completed() >= n` says that task n and all before it are done, so
/// an event is a lane and a number, recording one costs no allocation, and waiting for one that has happened costs nothing at all.
#pragma once

#include <runnel/config.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::host {

class Lane;
using LanePtr = std::shared_ptr<Lane>;

/// One piece of work, on the heap.
struct Task {
  Task* next = nullptr;
  void (*run_and_delete)(Task*) noexcept;  // null: a Wait
};

template <class F>
struct TaskOf : Task {
  explicit TaskOf(F f)
      : Task{nullptr,
             [](Task* self) noexcept {
               const std::unique_ptr<TaskOf> task{static_cast<TaskOf*>(self)};
               task->work();
             }},
        work{std::move(f)} {}
  F work;
};

/// Holds its lane up until another lane has come to a number; no thread waits meanwhile.
struct Wait : Task {
  Wait(LanePtr other, std::uint64_t number) : Task{nullptr, nullptr}, lane{std::move(other)}, until{number} {}
  LanePtr lane;
  std::uint64_t until;
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  explicit Lane(int priority) noexcept : priority_{priority} {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] int priority() const noexcept { return priority_; }
  [[nodiscard]] std::uint64_t submitted() const noexcept { return submitted_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool idle() const noexcept { return completed() >= submitted(); }

  /// Takes the task over; returns its number.
  std::uint64_t submit(Task* task);
  /// A Wait, unless what it would wait for has happened.
  void submit_wait(const LanePtr& other, std::uint64_t until);
  /// Holds the calling thread until task `number` is done. `spin`: look a few microseconds before sleeping.
  void wait_until(std::uint64_t number, bool spin);

 private:
  friend class Engine;
  friend class Worker;

  /// Somebody who wants to know when `number` is done: a parked lane, or a thread asleep in `wait_until`.
  struct Waiter {
    std::uint64_t number;
    LanePtr lane;
    bool* done;
  };

  /// The tasks submitted since the last call; null if there are none, and the lane is idle from then on.
  [[nodiscard]] Task* take_tasks() noexcept;
  void complete_one() noexcept;
  void wake_waiters() noexcept;
  /// False if `number` is done already.
  [[nodiscard]] bool add_waiter(const Waiter& waiter);

  const int priority_;
  std::mutex mutex_;      // guards the queue and busy_
  bool busy_ = false;     // some worker runs it, or it waits for one, or for another lane
  Task* first_ = nullptr;
  Task* last_ = nullptr;
  std::atomic<std::uint64_t> submitted_{0};

  Task* begun_ = nullptr;  // taken from the queue, not yet run: touched only by whoever runs the lane
  std::atomic<std::uint64_t> completed_{0};

  std::mutex waiters_mutex_;
  std::condition_variable waiters_wake_;
  std::atomic<std::size_t> waiter_count_{0};
  std::vector<Waiter> waiters_;
};

/// Priorities as the host backend has them.
inline constexpr int least_priority = 1;
inline constexpr int greatest_priority = -1;

/// Makes a ready lane run, at once if a core is free or nothing that runs makes progress, else when its turn comes.
void start(LanePtr lane);

template <class F>
std::uint64_t submit(Lane& lane, F work) {
  return lane.submit(new TaskOf<F>{std::move(work)});
}

}  // namespace runnel::inline RUNNEL_ABI::host
