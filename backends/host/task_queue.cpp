// SPDX-License-Identifier: Apache-2.0
#include "task_queue.hpp"

#include "engine.hpp"
#include "spin.hpp"

#include "base/prefetch.hpp"

#include <algorithm>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {

void TaskQueueList::push_back(TaskQueuePtr queue) noexcept {
  TaskQueue* const added = queue.get();
  (first_ == nullptr ? first_ : last_->next_) = std::move(queue);
  last_ = added;
}

TaskQueuePtr TaskQueueList::pop_front() noexcept {
  TaskQueuePtr queue = std::move(first_);
  first_ = std::move(queue->next_);
  return queue;
}

TaskQueue::~TaskQueue() {
  while (first_ != nullptr) delete std::exchange(first_, first_->next);
  while (spare_ != nullptr) delete std::exchange(spare_, spare_->next);
}

void TaskQueue::add_block() noexcept {
  TaskBlock* const block = std::exchange(spare_, spare_->next);
  block->next = nullptr;
  (last_ == nullptr ? first_ : last_->next) = block;
  last_ = block;
  if (submitted_.load(std::memory_order_relaxed) >= room_until_)
    may_be_full_.store(true, std::memory_order_relaxed);
}

std::uint64_t TaskQueue::append(bool (*run)(void*) noexcept,
                                void (*move_in)(void* payload, void* work) noexcept, void* work) {
  std::uint64_t number = 0;
  {
    std::unique_lock lock{lock_};
    const auto index = [&] { return submitted_.load(std::memory_order_relaxed) % TaskBlock::size; };
    if (index() == 0 && spare_ == nullptr) {
      lock.unlock();
      auto fresh = std::make_unique<TaskBlock>();
      lock.lock();
      if (spare_ == nullptr) spare_ = fresh.release();
    }
    if (index() == 0) add_block();  // The last block is full.
    Task& task = last_->tasks[index()];
    detail::prefetch_to_write(&task + 4);  // the worker accessed it last
    task.run = run;
    move_in(task.payload, work);
    last_->note_caller(index());
    sync::happens_before(&task);
    number = submitted_.load(std::memory_order_relaxed) + 1;
    submitted_.store(number, std::memory_order_release);
    if (std::exchange(busy_, true)) return number;
  }
  host::start(shared_from_this());
  return number;
}

void TaskQueue::reserve(std::size_t tasks) {
  std::unique_lock lock{lock_};
  const auto used =
      static_cast<std::size_t>(submitted_.load(std::memory_order_relaxed) % TaskBlock::size);
  const std::size_t left = used == 0 ? 0 : TaskBlock::size - used;
  std::size_t missing = tasks <= left ? 0 : (tasks - left + TaskBlock::size - 1) / TaskBlock::size;
  for (const TaskBlock* spare = spare_; spare != nullptr && missing > 0; spare = spare->next)
    --missing;
  for (; missing > 0; --missing) {
    lock.unlock();
    auto fresh = std::make_unique<TaskBlock>();
    lock.lock();
    fresh->next = spare_;
    spare_ = fresh.release();
  }
}

bool Wait::is_over() const noexcept { return queue == nullptr || queue->completed() >= until; }

void Wait::block_caller(bool spin) const {
  if (queue != nullptr) queue->wait_until(until, spin);
  token.happens_after();
}

Wait TaskQueue::end_of(const TaskQueuePtr& queue) {
  Wait all{queue, queue->submitted()};
  if constexpr (sync::finds_races) {
    // A task announces the present end of the stream: later work of the stream must not seem to be
    // waited for.
    const bool is_closed = queue->closed_.load(std::memory_order_relaxed);
    all.token = is_closed ? sync::Token::of_part(queue, &queue->completed_) : sync::Token::make();
    if (!is_closed) all.until = queue->submit([token = all.token] { token.happens_before(); });
  }
  return all;
}

void TaskQueue::close() noexcept {
  closed_.store(true, std::memory_order_relaxed);
  host::close(*this);
}

void TaskQueue::submit_wait(Wait wait) {
  if (wait.queue.get() == this || (!sync::finds_races && wait.is_over())) return;
  const auto move_in = [](void* payload, void* from) noexcept {
    new (payload) Wait{std::move(*static_cast<Wait*>(from))};
  };
  append(nullptr, move_in, &wait);
}

bool TaskQueue::try_to_become_idle() noexcept {
  if (!is_idle()) return false;
  const std::lock_guard lock{lock_};
  busy_ = !is_idle();
  return !busy_;
}

Task& TaskQueue::front() noexcept {
  const std::uint64_t done = completed_.load(std::memory_order_relaxed);
  // Compared with first_end_: `done % size == 0` would free a block twice, because front() is
  // called again after a Wait has parked the queue.
  if (done == first_end_) {
    first_end_ += TaskBlock::size;
    std::unique_ptr<TaskBlock> emptied{std::exchange(first_, first_->next)};
    emptied->next = nullptr;
    const std::lock_guard lock{lock_};
    if (spare_ == nullptr) spare_ = emptied.release();
  }
  return first_->tasks[done % TaskBlock::size];
}

void TaskQueue::complete_one() noexcept {
  // Sequentially consistent here and in announce_waiter(): either the waiter sees the new number,
  // or this thread sees the waiter.
  const std::uint64_t number = completed_.load(std::memory_order_relaxed) + 1;
  sync::happens_before(&completed_);
  completed_.store(number, std::memory_order_seq_cst);
  if (first_awaited_.load(std::memory_order_seq_cst) <= number) [[unlikely]]
    wake_waiters();
}

void TaskQueue::wake_waiters() noexcept {
  TaskQueueList woken = wake_and_take();
  // Without the lock, which the woken threads need at once. A thread that must wait longer
  // announces its number again.
  waiters_wake_.notify_all();
  while (!woken.is_empty()) host::start(woken.pop_front());
}

TaskQueueList TaskQueue::wake_and_take() noexcept {
  const std::lock_guard lock{waiters_mutex_};
  const std::uint64_t done = completed();
  std::uint64_t first = none;
  TaskQueueList woken, parked;
  while (!parked_.is_empty()) {
    TaskQueuePtr queue = parked_.pop_front();
    const std::uint64_t number = queue->parked_for_;
    if (number > done) first = std::min(first, number);
    (number > done ? parked : woken).push_back(std::move(queue));
  }
  parked_ = std::move(parked);
  first_awaited_.store(first, std::memory_order_seq_cst);
  return woken;
}

bool TaskQueue::announce_waiter(std::uint64_t number) noexcept {
  if (number < first_awaited_.load(std::memory_order_relaxed))
    first_awaited_.store(number, std::memory_order_seq_cst);
  return completed_.load(std::memory_order_seq_cst) < number;
}

bool TaskQueue::park(TaskQueuePtr queue, std::uint64_t number) noexcept {
  const std::lock_guard lock{waiters_mutex_};
  if (!announce_waiter(number)) return false;
  queue->parked_for_ = number;
  parked_.push_back(std::move(queue));
  return true;
}

void TaskQueue::wait_until(std::uint64_t number, bool spin) {
  const auto is_complete = [&] { return completed() >= number; };
  if (is_complete() || (spin && spin_for(is_complete))) return;
  std::unique_lock lock{waiters_mutex_};
  while (announce_waiter(number)) waiters_wake_.wait(lock);
}

/// Waits until there is room for many tasks, so that a full queue does not wake its callers for
/// each task.
void TaskQueue::make_room() {
  constexpr std::uint64_t batch = 1024;
  const std::uint64_t all = submitted();
  if (all - completed() >= max_pending) wait_until(all - max_pending + batch, false);
  const std::lock_guard lock{lock_};
  room_until_ = completed() + max_pending;
  may_be_full_.store(submitted_.load(std::memory_order_relaxed) >= room_until_,
                     std::memory_order_relaxed);
}

}  // namespace runnel::inline RUNNEL_ABI::host
