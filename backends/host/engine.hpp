// SPDX-License-Identifier: Apache-2.0
/// The host backend's engine: lanes of work, run by as many threads as there are lanes with something to run.
///
/// A lane's tasks are numbered from 1 in the order of submission. `completed() >= n` says that task n and all before it are done, so
/// an event is a lane and a number, recording one costs no allocation, and waiting for one that has happened costs nothing at all.
#pragma once

#include "base/spin_lock.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {

class Lane;
using LanePtr = std::shared_ptr<Lane>;

/// One piece of work, in place in its lane's queue.
struct alignas(64) Task {
  static constexpr std::size_t room = 64 - sizeof(void*);

  /// Runs what `payload` holds, and destroys it. Null: the payload is a Wait.
  void (*run)(void* payload) noexcept;
  alignas(void*) std::byte payload[room];
};
static_assert(sizeof(Task) == 64);

/// Holds its lane up until another lane has come to a number; no thread waits meanwhile.
struct Wait {
  LanePtr lane;
  std::uint64_t until;
};

/// Tasks come and go in blocks, so that submitting one allocates nothing most of the time.
struct TaskBlock {
  static constexpr std::size_t size = 63;
  Task tasks[size];
  TaskBlock* next = nullptr;
};

/// A queue of lanes, linked through the lanes themselves, so that no operation needs memory. A lane is in at most one list at a time.
class LaneList {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  void push_back(LanePtr lane) noexcept;
  /// Requires: the list is not empty.
  [[nodiscard]] LanePtr pop_front() noexcept;

 private:
  LanePtr first_;
  Lane* last_ = nullptr;
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  /// A lane holds at most about this many tasks that have not run; who enqueues more waits in `wait_for_room`.
  static constexpr std::uint64_t most_pending = std::uint64_t{1} << 16;

  explicit Lane(int priority) noexcept : priority_{priority} {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  [[nodiscard]] int priority() const noexcept { return priority_; }
  [[nodiscard]] std::uint64_t submitted() const noexcept { return submitted_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool idle() const noexcept { return completed() >= submitted(); }

  /// Enqueues work; returns its number. @throws std::bad_alloc, and then nothing was enqueued
  template <class F>
  std::uint64_t submit(F work) {
    static_assert(sizeof(F) <= Task::room && std::is_nothrow_move_constructible_v<F>);
    const auto run = [](void* payload) noexcept {
      F& own = *static_cast<F*>(payload);
      own();
      own.~F();
    };
    const auto move_in = [](void* payload, void* from) noexcept { new (payload) F{std::move(*static_cast<F*>(from))}; };
    return append(run, move_in, &work);
  }
  /// Enqueues a Wait, unless what it would wait for has happened. @throws std::bad_alloc, and then nothing was enqueued
  void submit_wait(const LanePtr& other, std::uint64_t until);
  /// Holds the calling thread while the lane is full.
  /// Requires: the caller holds no lock that a task or a user of another stream may need.
  void wait_for_room() {
    if (may_be_full_.load(std::memory_order_relaxed)) [[unlikely]]
      make_room();
  }
  /// Holds the calling thread until task `number` is done. `spin`: look a few microseconds before sleeping.
  void wait_until(std::uint64_t number, bool spin);

 private:
  friend class Engine;
  friend class Worker;

  friend class LaneList;

  /// Appends a task; `move_in` moves `work` into its payload.
  std::uint64_t append(void (*run)(void*) noexcept, void (*move_in)(void* payload, void* work) noexcept, void* work);
  /// False if there is more to run; else the lane is idle from then on, and may be started by anyone.
  [[nodiscard]] bool try_to_rest() noexcept;
  /// The first task that is not done; there is one.
  [[nodiscard]] Task& front() noexcept;
  void complete_one() noexcept;
  void wake_waiters() noexcept;
  /// Wakes the threads in `wait_until` and takes out the lanes whose number is done.
  [[nodiscard]] LaneList take_woken() noexcept;
  /// Parks a lane until `number` is done. False, with nothing done, if it is done already.
  [[nodiscard]] bool park(LanePtr lane, std::uint64_t number) noexcept;
  /// Announces a waiter for `number`; false if `number` is done already. Requires: waiters_mutex_ is held.
  [[nodiscard]] bool announce_waiter(std::uint64_t number) noexcept;
  void make_room();

  const int priority_;

  detail::SpinLock lock_;                    // guards the end of the queue, busy_ and room_until_
  std::atomic<bool> may_be_full_{false};     // beside the lock, which whoever enqueues takes next: the check costs nothing there
  std::uint64_t room_until_ = most_pending;  // the number from which completed_ must be looked at
  bool busy_ = false;                        // some worker runs it, or it waits for one, or for another lane
  TaskBlock* last_ = nullptr;
  TaskBlock* spare_ = nullptr;                           // one block is kept for the next that is needed
  alignas(64) std::atomic<std::uint64_t> submitted_{0};  // apart from the lock: whoever runs the lane reads it all the time

  alignas(64) TaskBlock* first_ = nullptr;     // touched only by whoever runs the lane, once it is there
  std::uint64_t first_end_ = TaskBlock::size;  // the number of the last task in first_
  std::atomic<std::uint64_t> completed_{0};

  std::mutex waiters_mutex_;  // guards all of the following
  std::condition_variable waiters_wake_;
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::atomic<std::uint64_t> first_awaited_{none};  // the smallest number that a waiter waits for, or a smaller one
  LaneList parked_;                                 // behind this lane

  LanePtr next_;                  // in whichever list this lane is
  std::uint64_t parked_for_ = 0;  // what this lane waits for while it is parked behind another
};

/// Priorities as the host backend has them.
inline constexpr int least_priority = 1;
inline constexpr int greatest_priority = -1;

/// Starts the engine's first threads, with which every lane is run sooner or later, even if no further thread can be had.
/// @throws std::bad_alloc if they cannot be had
void start_engine();
/// Makes a ready lane run, at once if a core is free or nothing that runs makes progress, else when its turn comes.
/// Requires: start_engine() has succeeded.
void start(LanePtr lane) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::host
