// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "base/never_destroyed.hpp"
#include "base/sync.hpp"
#include "spin.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {

using namespace std::chrono_literals;
using sync::Clock;

namespace {

[[nodiscard]] int count_cores() noexcept {
  cpu_set_t set;
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  // At least two, even on one core: a copy and a kernel must make progress side by side.
  return sync::processors(std::max(2, allowed));
}

}  // namespace

/// A thread that runs task queues, one at a time.
class Worker {
 public:
  void loop(TaskQueuePtr first);

 private:
  friend class Engine;

  /// Runs the queue until it is idle, parked or set aside, or must yield to another queue.
  void run(TaskQueuePtr& queue);
  /// Runs the queue's first task. False if the task is not complete and the queue was parked or set
  /// aside. Another thread may then already run the queue.
  [[nodiscard]] bool run_front(const TaskQueuePtr& queue) noexcept;
  /// Waits for a queue. Null if the thread must end.
  [[nodiscard]] TaskQueuePtr wait_for_queue() noexcept;

  TaskQueuePtr given_;  // handed over while this worker is idle; assigned_ announces it
  sync::Atomic<bool> assigned_{false};
  // The worker counts against the cores. The monitor can revoke its core.
  sync::Atomic<bool> has_core_{true};
  // Changes with each task, and with each queue that is handed over.
  sync::Atomic<std::uint32_t> task_{1};
  sync::Atomic<bool> asleep_{false};
  sync::Atomic<int> wakers_{0};  // the number of threads that are about to notify wake_
  sync::Mutex mutex_;
  sync::ConditionVariable wake_;

  // In the engine's lists; protected by the engine's lock.
  Worker* next_ = nullptr;
  Worker* next_idle_ = nullptr;

  // The monitor's last observations.
  sync::ProcessorClock cpu_clock_;
  std::uint32_t seen_task_ = 0;
  std::chrono::nanoseconds seen_cpu_{0};
  Clock::time_point seen_since_{};
};

/// The scheduler. It runs as many queues as there are cores, the most urgent first. A host function
/// may block for any time, and must never delay another stream. So a monitor observes the workers
/// while queues are ready. It lets one more queue run for each task that has stopped using its
/// core, or has kept it for a long time.
///
/// Nothing here allocates, apart from a new thread. Each function that leaves a queue ready wakes
/// the monitor, which checks again at each tick while a queue is ready. So a queue without a thread
/// gets one later.
class Engine {
 public:
  void start_first_threads();
  void start(TaskQueuePtr queue) noexcept;
  /// The next queue for a worker. Null if there is none; the worker is then listed as idle.
  [[nodiscard]] TaskQueuePtr next(Worker& worker) noexcept;
  /// Whether a worker must put its queue back. `fair`: also for a queue of equal priority.
  [[nodiscard]] bool must_yield(const Worker& worker, const TaskQueue& queue,
                                bool fair) const noexcept {
    const int best = best_ready_.load(std::memory_order_relaxed);
    return !worker.has_core_.load(std::memory_order_relaxed) || best < queue.priority() ||
           (fair && best <= queue.priority());
  }
  [[nodiscard]] bool has_ready() const noexcept {
    return best_ready_.load(std::memory_order_relaxed) != none;
  }
  void put_back(TaskQueuePtr queue) noexcept;
  /// Puts back a queue whose task waits, while there are too few threads. The queue runs again when
  /// no other queue is ready.
  void set_aside(TaskQueuePtr queue) noexcept;
  [[nodiscard]] bool is_short_of_threads() const noexcept {
    return is_short_.load(std::memory_order_relaxed);
  }
  /// Removes an idle worker if there are more than enough. True if its thread must end.
  [[nodiscard]] bool retire(Worker& worker) noexcept;

 private:
  static constexpr int none = 1 << 30;
  static constexpr auto tick = 250us;
  static constexpr auto long_task = 10ms;

  /// @{ Requires: the lock is held.
  [[nodiscard]] TaskQueueList& ready_list_of(const TaskQueue& queue) noexcept {
    return ready_[static_cast<std::size_t>(queue.priority() - greatest_priority)];
  }
  void push_ready(TaskQueuePtr queue) noexcept;
  void push_ready(TaskQueueList& list, TaskQueuePtr queue) noexcept;
  /// The list of the most urgent ready queues; null if no queue is ready.
  [[nodiscard]] TaskQueueList* best_list() noexcept;
  [[nodiscard]] TaskQueuePtr pop_ready(TaskQueueList& list) noexcept;
  void update_best() noexcept;
  /// Gives the queue and a core to an idle worker or a new one. False if no thread can be created;
  /// nothing has changed then. If the worker sleeps, `asleep` points to it, and the caller must
  /// wake it. Requires: a core is free.
  [[nodiscard]] bool hand_over(TaskQueuePtr& queue, Worker*& asleep) noexcept;
  /// True if the worker sleeps; the caller must wake it then.
  [[nodiscard]] bool assign(Worker& worker, TaskQueuePtr queue) noexcept;
  /// Starts a worker with the queue and a core; without a queue it is idle. False if no thread can
  /// be created; nothing has changed then.
  [[nodiscard]] bool add_worker(TaskQueuePtr& queue) noexcept;
  void launch_worker(TaskQueuePtr& queue);
  void list_as_idle(Worker& worker) noexcept;
  void release_core(Worker& worker) noexcept {
    if (worker.has_core_.exchange(false, std::memory_order_relaxed)) ++free_cores_;
  }
  [[nodiscard]] static bool is_blocked_or_long(Worker& worker, Clock::time_point now) noexcept;
  /// Revokes the core of each worker whose task is blocked or long.
  void revoke_cores() noexcept;
  /// Starts ready queues while there are free cores. Releases the lock to wake a worker.
  void start_ready_queues(std::unique_lock<sync::Mutex>& lock) noexcept;
  /// @} Wakes a worker; does nothing for null. Requires: the lock is not held, because the woken
  /// thread may need it at once, and a system call is long.
  static void wake(Worker* asleep) noexcept;
  void monitor() noexcept;

  sync::Mutex mutex_;
  // by priority; the last one is for queues that were set aside
  std::array<TaskQueueList, 4> ready_;
  sync::Atomic<int> best_ready_{none};
  sync::Atomic<bool> is_short_{false};  // no thread could be created for a ready queue
  const int cores_ = count_cores();
  int free_cores_ = cores_;
  Worker* workers_ = nullptr;
  Worker* idle_ = nullptr;
  int idle_count_ = 0;
  sync::ConditionVariable monitor_wake_;
  bool monitor_started_ = false;
};

namespace {
Engine& engine() { return detail::never_destroyed<Engine>(); }
}  // namespace

void prepare(TaskQueue&) {
  static constinit sync::Atomic<bool> started{false};
  if (started.load(std::memory_order_acquire)) return;
  engine().start_first_threads();
  started.store(true, std::memory_order_release);
}
void start(TaskQueuePtr queue) noexcept { engine().start(std::move(queue)); }
bool is_short_of_threads() noexcept { return engine().is_short_of_threads(); }
void close(TaskQueue&) noexcept {}
void name(TaskQueue&, const char*) noexcept {}

// Worker

void Worker::loop(TaskQueuePtr queue) {
  for (;;) {
    while (queue != nullptr) {
      run(queue);
      queue = engine().next(*this);
    }
    queue = wait_for_queue();
    if (queue == nullptr) break;
  }
  // A thread that woke this one long ago may have been preempted since.
  while (wakers_.load(std::memory_order_acquire) != 0) sync::yield();
}

TaskQueuePtr Worker::wait_for_queue() noexcept {
  // The worker is listed as idle: a queue may be handed over at any moment.
  const auto is_assigned = [&] { return assigned_.load(std::memory_order_seq_cst); };
  while (!spin_for(is_assigned)) {
    std::unique_lock lock{mutex_};
    asleep_.store(true, std::memory_order_seq_cst);
    const bool woken = wake_.wait_for(lock, 2s, is_assigned);
    asleep_.store(false, std::memory_order_relaxed);
    lock.unlock();
    if (woken) break;
    if (engine().retire(*this)) return nullptr;
  }
  assigned_.store(false, std::memory_order_relaxed);
  return std::move(given_);
}

inline bool Worker::run_front(const TaskQueuePtr& queue) noexcept {
  Task& task = queue->front();
  if (task.run != nullptr) {
    task_.store(task_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (task.run(task.payload)) [[likely]]
      return true;
    engine().set_aside(queue);
    return false;
  }
  Wait& wait = *reinterpret_cast<Wait*>(task.payload);
  if (wait.queue->completed() < wait.until) {
    // A copy: another thread may run the parked queue and destroy the wait before park() has
    // returned.
    const TaskQueuePtr other = wait.queue;
    if (other->park(queue, wait.until)) return false;
  }
  wait.~Wait();
  return true;
}

void Worker::run(TaskQueuePtr& queue) {
  const auto has_more = [&] { return !queue->is_idle() || engine().has_ready(); };
  std::uint64_t done = queue->completed();
  std::uint64_t known = done;  // the number of submitted tasks at the last check
  for (unsigned count = 1;; ++count, ++done) {
    if (done == known) {
      // The next task often follows soon. For an idle queue it would need a hand-over to a worker.
      // A thread that submits many tasks is faster if this thread does not read its counter after
      // each of them.
      if (count > 1) pause();
      static_cast<void>(spin_for(has_more));
      if (queue->try_to_become_idle()) return;
      known = queue->submitted();
    }
    if (!run_front(queue)) return;
    queue->complete_one();
    if (engine().must_yield(*this, *queue, count % 32 == 0)) [[unlikely]] {
      engine().put_back(std::move(queue));
      return;
    }
  }
}

// Engine

void Engine::push_ready(TaskQueueList& list, TaskQueuePtr queue) noexcept {
  list.push_back(std::move(queue));
  update_best();
}
void Engine::push_ready(TaskQueuePtr queue) noexcept {
  TaskQueueList& list = ready_list_of(*queue);
  push_ready(list, std::move(queue));
}

TaskQueueList* Engine::best_list() noexcept {
  for (TaskQueueList& list : ready_)
    if (!list.is_empty()) return &list;
  return nullptr;
}

TaskQueuePtr Engine::pop_ready(TaskQueueList& list) noexcept {
  TaskQueuePtr queue = list.pop_front();
  update_best();
  return queue;
}

void Engine::update_best() noexcept {
  int best = none;
  for (std::size_t i = ready_.size(); i-- > 0;)
    if (!ready_[i].is_empty()) best = greatest_priority + static_cast<int>(i);
  best_ready_.store(best, std::memory_order_relaxed);
  if (best == none) is_short_.store(false, std::memory_order_relaxed);
}

/// Starts the monitor and one worker. A worker ends only while more workers than cores are idle, so
/// one worker always stays.
void Engine::start_first_threads() {
  const std::lock_guard lock{mutex_};
  if (!monitor_started_) {
    try {
      sync::Thread{[this] { monitor(); }}.detach();
    } catch (const std::system_error&) {
      throw std::bad_alloc{};
    }
    monitor_started_ = true;
  }
  TaskQueuePtr no_queue;
  if (workers_ == nullptr && !add_worker(no_queue)) throw std::bad_alloc{};
}

void Engine::start(TaskQueuePtr queue) noexcept {
  Worker* asleep = nullptr;
  bool is_given = false;
  {
    const std::lock_guard lock{mutex_};
    is_given = free_cores_ > 0 && hand_over(queue, asleep);
    if (!is_given) push_ready(std::move(queue));
  }
  if (is_given)
    wake(asleep);
  else
    monitor_wake_.notify_one();
}

bool Engine::hand_over(TaskQueuePtr& queue, Worker*& asleep) noexcept {
  if (idle_ == nullptr && !add_worker(queue)) {
    is_short_.store(true, std::memory_order_relaxed);
    return false;
  }
  --free_cores_;
  if (queue == nullptr) return true;  // The new worker has it.
  Worker* const worker = std::exchange(idle_, idle_->next_idle_);
  --idle_count_;
  if (assign(*worker, std::move(queue))) asleep = worker;
  return true;
}

bool Engine::assign(Worker& worker, TaskQueuePtr queue) noexcept {
  worker.has_core_.store(true, std::memory_order_relaxed);
  // Restarts the monitor's timer.
  worker.task_.store(worker.task_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  worker.given_ = std::move(queue);
  worker.assigned_.store(true, std::memory_order_seq_cst);
  if (!worker.asleep_.load(std::memory_order_seq_cst)) return false;
  // Under the engine's lock, so that the worker cannot end first.
  worker.wakers_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Engine::wake(Worker* asleep) noexcept {
  if (asleep == nullptr) return;
  {
    const std::lock_guard until_it_waits{asleep->mutex_};
  }
  asleep->wake_.notify_one();
  asleep->wakers_.fetch_sub(1, std::memory_order_release);
}

bool Engine::add_worker(TaskQueuePtr& queue) noexcept {
  try {
    launch_worker(queue);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const std::system_error&) {
    return false;
  }
}

void Engine::launch_worker(TaskQueuePtr& queue) {
  auto worker = std::make_unique<Worker>();
  const bool is_idle = queue == nullptr;
  if (is_idle) worker->has_core_.store(false, std::memory_order_relaxed);
  sync::Thread thread{[self = worker.get(), first = queue]() mutable {
    self->loop(std::move(first));
    delete self;
  }};
  worker->cpu_clock_ = sync::ProcessorClock{thread};
  thread.detach();
  queue = nullptr;
  worker->next_ = std::exchange(workers_, worker.get());
  if (is_idle) list_as_idle(*worker);
  static_cast<void>(worker.release());
}

void Engine::list_as_idle(Worker& worker) noexcept {
  worker.next_idle_ = std::exchange(idle_, &worker);
  ++idle_count_;
}

TaskQueuePtr Engine::next(Worker& worker) noexcept {
  const std::lock_guard lock{mutex_};
  if (!worker.has_core_.load(std::memory_order_relaxed) && free_cores_ > 0) {
    worker.has_core_.store(true, std::memory_order_relaxed);
    --free_cores_;
  }
  if (worker.has_core_.load(std::memory_order_relaxed))
    if (TaskQueueList* const list = best_list()) return pop_ready(*list);
  release_core(worker);
  list_as_idle(worker);
  return nullptr;
}

void Engine::put_back(TaskQueuePtr queue) noexcept {
  {
    const std::lock_guard lock{mutex_};
    push_ready(std::move(queue));
  }
  // The worker may have lost its core, and then goes to sleep.
  monitor_wake_.notify_one();
}

void Engine::set_aside(TaskQueuePtr queue) noexcept {
  {
    const std::lock_guard lock{mutex_};
    push_ready(ready_.back(), std::move(queue));
  }
  monitor_wake_.notify_one();
}

bool Engine::retire(Worker& worker) noexcept {
  const std::lock_guard lock{mutex_};
  if (idle_count_ <= cores_) return false;
  Worker** link = &idle_;
  while (*link != nullptr && *link != &worker) link = &(*link)->next_idle_;
  if (*link == nullptr) return false;  // A queue has just been handed over.
  *link = worker.next_idle_;
  --idle_count_;
  for (link = &workers_; *link != &worker;) link = &(*link)->next_;
  *link = worker.next_;
  return true;
}

bool Engine::is_blocked_or_long(Worker& worker, Clock::time_point now) noexcept {
  const std::uint32_t task = worker.task_.load(std::memory_order_relaxed);
  const auto cpu = worker.cpu_clock_.time();
  if (task != worker.seen_task_) {
    worker.seen_task_ = task;
    worker.seen_cpu_ = cpu;
    worker.seen_since_ = now;
    return false;
  }
  const bool is_blocked = now - worker.seen_since_ >= tick && cpu - worker.seen_cpu_ < tick / 4;
  worker.seen_cpu_ = cpu;
  return is_blocked || now - worker.seen_since_ > long_task;
}

void Engine::revoke_cores() noexcept {
  const auto now = Clock::now();
  for (Worker* worker = workers_; worker != nullptr; worker = worker->next_)
    if (worker->has_core_.load(std::memory_order_relaxed) && is_blocked_or_long(*worker, now))
      release_core(*worker);
}

void Engine::start_ready_queues(std::unique_lock<sync::Mutex>& lock) noexcept {
  while (free_cores_ > 0 && has_ready()) {
    Worker* asleep = nullptr;
    TaskQueueList& list = *best_list();
    TaskQueuePtr queue = pop_ready(list);
    if (!hand_over(queue, asleep)) return push_ready(list, std::move(queue));
    lock.unlock();
    wake(asleep);
    lock.lock();
  }
}

void Engine::monitor() noexcept {
  std::unique_lock lock{mutex_};
  for (;;) {
    monitor_wake_.wait(lock, [&] { return has_ready(); });
    lock.unlock();
    sync::sleep_for(tick);
    lock.lock();
    if (has_ready()) revoke_cores();
    start_ready_queues(lock);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::host
