// SPDX-License-Identifier: Apache-2.0
/// Queues of tasks, one for each stream, run by the engine (engine.hpp).
///
/// A queue's tasks are numbered from 1 in the order of submission. `completed() >= n` means that
/// task n and all tasks before it are complete. So an event is a queue and a number. Recording it
/// allocates nothing, and waiting for a complete one costs nothing.
#pragma once

#include "base/announce.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {

class TaskQueue;
using TaskQueuePtr = std::shared_ptr<TaskQueue>;

/// Runs the work once. Returns whether it is finished. Work that returns false must be called
/// again; work that returns void is finished.
template <class F>
[[nodiscard]] bool run_once(F& work) noexcept {
  if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
    work();
    return true;
  } else {
    return work();
  }
}

/// One piece of work, stored in the queue itself.
struct alignas(64) Task {
  static constexpr std::size_t room = 64 - sizeof(void*);

  /// Runs the work in `payload`, and destroys it if it is finished. False: it is not finished, and
  /// must run again. Null: the payload is a Wait.
  bool (*run)(void* payload) noexcept;
  alignas(void*) std::byte payload[room];
};
static_assert(sizeof(Task) == 64);

/// Blocks its queue until another queue has completed task `until`. No thread waits meanwhile.
struct Wait {
  TaskQueuePtr queue;
  std::uint64_t until = 0;
  // Orders later work after the awaited tasks, for announce.hpp.
  [[no_unique_address]] sync::Token token{};

  [[nodiscard]] bool is_over() const noexcept;
  /// Blocks the calling thread. `spin`: polls for a few microseconds before it sleeps.
  void block_caller(bool spin) const;
};

/// Tasks are stored in blocks, so that most submissions do not allocate.
struct TaskBlock : sync::Callers<63> {
  static constexpr std::size_t size = 63;
  Task tasks[size];
  TaskBlock* next = nullptr;
};

/// A list of queues, linked through the queues themselves, so that no operation allocates. A queue
/// is in at most one list at a time.
class TaskQueueList {
 public:
  [[nodiscard]] bool is_empty() const noexcept { return first_ == nullptr; }
  void push_back(TaskQueuePtr queue) noexcept;
  /// Requires: the list is not empty.
  [[nodiscard]] TaskQueuePtr pop_front() noexcept;

 private:
  TaskQueuePtr first_;
  TaskQueue* last_ = nullptr;
};

class TaskQueue : public std::enable_shared_from_this<TaskQueue> {
 public:
  /// The approximate limit of unfinished tasks in a queue. A thread that submits more blocks in
  /// `wait_for_room`.
  static constexpr std::uint64_t max_pending = std::uint64_t{1} << 16;

  explicit TaskQueue(int priority) noexcept : priority_{priority} {}
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;
  ~TaskQueue();

  [[nodiscard]] int priority() const noexcept { return priority_; }
  [[nodiscard]] std::uint64_t submitted() const noexcept {
    return submitted_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t completed() const noexcept {
    return completed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_idle() const noexcept { return completed() >= submitted(); }
  /// For announce.hpp: orders what the caller does next after all completed tasks. Requires: the
  /// caller has just seen their completion, on behalf of the user.
  void order_after_completed() const noexcept { sync::happens_after(&completed_); }

  /// Enqueues work, for run_once(). Returns its number.
  /// @throws std::bad_alloc; nothing was enqueued then
  template <class F>
  std::uint64_t submit(F work) {
    static_assert(sizeof(F) <= Task::room && std::is_nothrow_move_constructible_v<F>);
    const auto run = [](void* payload) noexcept {
      F& own = *static_cast<F*>(payload);
      if (!run_once(own)) return false;
      own.~F();
      return true;
    };
    const auto move_in = [](void* payload, void* from) noexcept {
      new (payload) F{std::move(*static_cast<F*>(from))};
    };
    return append(run, move_in, &work);
  }
  /// Makes the next `tasks` submissions succeed, if no other thread submits meanwhile.
  /// @throws std::bad_alloc
  void reserve(std::size_t tasks);
  /// Enqueues a Wait, unless the other queue has already completed the task.
  /// @throws std::bad_alloc; nothing was enqueued then
  void submit_wait(Wait wait);
  /// A wait for all tasks submitted so far.
  /// @throws std::bad_alloc, only with the option find_races
  [[nodiscard]] static Wait end_of(const TaskQueuePtr& queue);
  /// Declares that no more work will be submitted. Only waits for earlier work may still be
  /// requested.
  void close() noexcept;
  /// Blocks the calling thread while the queue is full. Requires: the caller holds no lock that a
  /// task or a user of another stream may need.
  void wait_for_room() {
    if (may_be_full_.load(std::memory_order_relaxed)) [[unlikely]]
      make_room();
  }
  /// Blocks the calling thread until task `number` is complete. `spin`: polls for a few
  /// microseconds before it sleeps.
  void wait_until(std::uint64_t number, bool spin);

 private:
  friend class Engine;
  friend class Worker;
  friend class TaskQueueList;

  /// Appends a task; `move_in` moves `work` into its payload.
  std::uint64_t append(bool (*run)(void*) noexcept,
                       void (*move_in)(void* payload, void* work) noexcept, void* work);
  /// Links a new last block. Requires: the lock is held, and there is a spare block.
  void add_block() noexcept;
  /// False if there is more to run. Otherwise the queue is idle from then on, and any thread may
  /// start it.
  [[nodiscard]] bool try_to_become_idle() noexcept;
  /// The first unfinished task. Requires: there is one.
  [[nodiscard]] Task& front() noexcept;
  void complete_one() noexcept;
  void wake_waiters() noexcept;
  /// Removes the parked queues whose number is complete. The caller must notify the threads in
  /// `wait_until`.
  [[nodiscard]] TaskQueueList wake_and_take() noexcept;
  /// Parks a queue until task `number` of this one is complete. False if it is already complete;
  /// nothing has changed then.
  [[nodiscard]] bool park(TaskQueuePtr queue, std::uint64_t number) noexcept;
  /// Announces a waiter for `number`; false if `number` is already complete. Requires:
  /// waiters_mutex_ is held.
  [[nodiscard]] bool announce_waiter(std::uint64_t number) noexcept;
  void make_room();

  detail::SpinLock lock_;  // protects the end of the queue, busy_ and room_until_
  // Next to the lock, which a submission takes next: so the check costs nothing.
  sync::Atomic<bool> may_be_full_{false};
  // A submission that adds a block from this number on reads completed_.
  std::uint64_t room_until_ = max_pending;
  // A worker runs the queue, or the queue waits for a worker or another queue.
  bool busy_ = false;
  TaskBlock* last_ = nullptr;
  // Empty blocks for later tasks: usually one.
  TaskBlock* spare_ = nullptr;
  // On another cache line than the lock, because the worker that runs the queue polls it.
  alignas(64) sync::Atomic<std::uint64_t> submitted_{0};

  // Once there is a block, only the worker that runs the queue accesses this.
  alignas(64) TaskBlock* first_ = nullptr;
  std::uint64_t first_end_ = TaskBlock::size;  // the number of the last task in first_
  sync::Atomic<std::uint64_t> completed_{0};
  // on another cache line than the lock, because the worker reads it after each task
  const int priority_;

  sync::Mutex waiters_mutex_;  // protects all following members
  sync::ConditionVariable waiters_wake_;
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  // A lower bound of the awaited numbers.
  sync::Atomic<std::uint64_t> first_awaited_{none};
  TaskQueueList parked_;  // the queues that wait for this one

  std::shared_ptr<void> runner_;  // the engine's data for this queue, if it has any
  sync::Atomic<bool> closed_{false};

  TaskQueuePtr next_;  // in the list that contains this queue
  // The number that this queue waits for while it is parked.
  std::uint64_t parked_for_ = 0;
};

}  // namespace runnel::inline RUNNEL_ABI::host
