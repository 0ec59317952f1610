// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "relax.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <deque>
#include <system_error>
#include <thread>

namespace runnel::inline RUNNEL_ABI::host {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

using detail::relax;

/// Looks for a few microseconds: longer than a hand-over takes on a quiet machine. On a busy one it is the sleeper whom the scheduler
/// lets in first, so more looking, or yielding, would lose time there. Ever less often, since each look takes the cache line from the
/// thread that is to write it.
template <class F>
[[nodiscard]] bool spin_for(F done) noexcept {
  for (int spent = 0, pauses = 1; spent < 100; spent += pauses, pauses = std::min(2 * pauses, 16)) {
    if (done()) return true;
    for (int i = 0; i < pauses; ++i) relax();
  }
  return done();
}

[[nodiscard]] int core_count() noexcept {
  cpu_set_t set;
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(2, allowed);  // two even on one core: a copy and a kernel are to make progress side by side
}

}  // namespace

/// A thread that runs lanes, one at a time.
class Worker {
 public:
  void loop(LanePtr first);

 private:
  friend class Engine;

  /// Runs the lane until it is idle, parked, or has to make room.
  void run(LanePtr& lane);
  [[nodiscard]] std::chrono::nanoseconds cpu_time() const noexcept {
    timespec t{};
    if (clock_gettime(cpu_clock_, &t) != 0) return 0ns;
    return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
  }

  LanePtr given_;  // handed over while idle, announced by:
  std::atomic<bool> assigned_{false};
  std::atomic<bool> has_slot_{true};    // counts against the cores; taken away by the monitor
  std::atomic<std::uint32_t> task_{0};  // changes with every task
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_;

  // The monitor's notes.
  clockid_t cpu_clock_{};
  std::uint32_t seen_task_ = 0;
  std::chrono::nanoseconds seen_cpu_{0};
  Clock::time_point seen_since_{};
};

/// Decides which lane runs. As many run as there are cores, the most urgent first. But a host function may block for as long as it
/// likes, and must never hold up another stream: so a monitor watches while lanes are waiting, and lets one more run for each
/// task that has stopped using its core, or that has kept it for a long time.
class Engine {
 public:
  void start(LanePtr lane);
  /// The next lane for a worker that has nothing to do; null if it is to sleep.
  [[nodiscard]] LanePtr next(Worker& worker);
  /// Whether a worker must put its lane back. `fair`: also for a lane that is merely as urgent.
  [[nodiscard]] bool must_yield(const Worker& worker, const Lane& lane, bool fair) const noexcept {
    const int best = best_waiting_.load(std::memory_order_relaxed);
    return !worker.has_slot_.load(std::memory_order_relaxed) || best < lane.priority() || (fair && best <= lane.priority());
  }
  [[nodiscard]] bool anyone_waiting() const noexcept { return best_waiting_.load(std::memory_order_relaxed) != nobody; }
  void put_back(LanePtr lane);
  /// Ends an idle worker if there are more than enough. True if it is to end.
  [[nodiscard]] bool retire(Worker& worker);

 private:
  static constexpr int nobody = 1 << 30;
  static constexpr auto tick = 250us;
  static constexpr auto long_task = 10ms;

  [[nodiscard]] static std::size_t queue_of(const Lane& lane) noexcept {
    return static_cast<std::size_t>(lane.priority() - greatest_priority);
  }
  void enqueue(LanePtr lane);
  [[nodiscard]] LanePtr dequeue();
  void update_best() noexcept;
  bool hand_over(LanePtr lane);
  void give_up_slot(Worker& worker) noexcept {
    if (worker.has_slot_.exchange(false, std::memory_order_relaxed)) ++free_slots_;
  }
  void monitor();

  std::mutex mutex_;
  std::array<std::deque<LanePtr>, 3> ready_;
  std::atomic<int> best_waiting_{nobody};
  const int cores_ = core_count();
  int free_slots_ = cores_;
  std::vector<Worker*> workers_;
  std::vector<Worker*> idle_;
  std::condition_variable monitor_wake_;
  bool monitor_started_ = false;
};

namespace {
// Never destroyed: its threads are still there when statics die, and the process ends under them.
Engine& engine() {
  static Engine& instance = *new Engine;
  return instance;
}
}  // namespace

void start(LanePtr lane) { engine().start(std::move(lane)); }

// Lane

Lane::~Lane() {
  while (first_ != nullptr) delete std::exchange(first_, first_->next);
  delete spare_;
}

std::uint64_t Lane::append(void (*run)(void*) noexcept, void (*move_in)(void* payload, void* work) noexcept, void* work) {
  std::uint64_t number = 0;
  {
    std::unique_lock lock{lock_};
    const auto place = [&] { return submitted_.load(std::memory_order_relaxed) % TaskBlock::size; };
    if (place() == 0 && spare_ == nullptr) {
      lock.unlock();
      auto fresh = std::make_unique<TaskBlock>();
      lock.lock();
      if (spare_ == nullptr) spare_ = fresh.release();
    }
    if (place() == 0) {  // the last block is full
      TaskBlock* const block = std::exchange(spare_, nullptr);
      block->next = nullptr;
      (last_ == nullptr ? first_ : last_->next) = block;
      last_ = block;
    }
    Task& task = last_->tasks[place()];
    task.run = run;
    move_in(task.payload, work);
    number = submitted_.load(std::memory_order_relaxed) + 1;
    submitted_.store(number, std::memory_order_release);
    if (std::exchange(busy_, true)) return number;
  }
  host::start(shared_from_this());
  return number;
}

void Lane::submit_wait(const LanePtr& other, std::uint64_t until) {
  if (other.get() == this || other->completed() >= until) return;
  Wait wait{other, until};
  const auto move_in = [](void* payload, void* from) noexcept { new (payload) Wait{std::move(*static_cast<Wait*>(from))}; };
  append(nullptr, move_in, &wait);
}

bool Lane::try_to_rest() noexcept {
  if (!idle()) return false;
  const std::lock_guard lock{lock_};
  busy_ = !idle();
  return !busy_;
}

Task& Lane::front() noexcept {
  const std::uint64_t done = completed_.load(std::memory_order_relaxed);
  if (done == first_end_) {  // not "at each multiple": a task that holds the lane up is looked at twice
    first_end_ += TaskBlock::size;
    std::unique_ptr<TaskBlock> emptied{std::exchange(first_, first_->next)};
    const std::lock_guard lock{lock_};
    if (spare_ == nullptr) spare_ = emptied.release();
  }
  return first_->tasks[done % TaskBlock::size];
}

void Lane::complete_one() noexcept {
  // Sequentially consistent on both sides: either the waiter sees the new number or this sees the waiter.
  completed_.store(completed_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  if (waiter_count_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
    wake_waiters();
}

void Lane::wake_waiters() noexcept {
  std::vector<LanePtr> lanes;
  {
    const std::lock_guard lock{waiters_mutex_};
    const std::uint64_t done = completed();
    const auto passed = std::partition(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.number > done; });
    for (auto w = passed; w != waiters_.end(); ++w) {
      if (w->lane != nullptr)
        lanes.push_back(std::move(w->lane));
      else
        *w->done = true;
    }
    if (passed != waiters_.end()) waiters_wake_.notify_all();  // under the lock: the flags live on the waiters' stacks
    waiters_.erase(passed, waiters_.end());
    waiter_count_.store(waiters_.size(), std::memory_order_seq_cst);
  }
  for (LanePtr& lane : lanes) host::start(std::move(lane));
}

bool Lane::add_waiter(const Waiter& waiter) {
  const std::lock_guard lock{waiters_mutex_};
  waiter_count_.store(waiters_.size() + 1, std::memory_order_seq_cst);
  if (completed_.load(std::memory_order_seq_cst) >= waiter.number) {
    waiter_count_.store(waiters_.size(), std::memory_order_seq_cst);
    return false;
  }
  waiters_.push_back(waiter);
  return true;
}

void Lane::wait_until(std::uint64_t number, bool spin) {
  const auto is_done = [&] { return completed() >= number; };
  if (is_done() || (spin && spin_for(is_done))) return;
  bool done = false;
  if (!add_waiter({number, nullptr, &done})) return;
  std::unique_lock lock{waiters_mutex_};
  waiters_wake_.wait(lock, [&] { return done; });
}

// Worker

void Worker::loop(LanePtr lane) {
  for (;;) {
    while (lane != nullptr) {
      run(lane);
      lane = engine().next(*this);
    }
    // Idle, and listed as such: a lane may be handed over at any moment.
    const auto handed = [&] { return assigned_.load(std::memory_order_seq_cst); };
    while (!spin_for(handed)) {
      std::unique_lock lock{mutex_};
      asleep_.store(true, std::memory_order_seq_cst);
      const bool woken = wake_.wait_for(lock, 2s, handed);
      asleep_.store(false, std::memory_order_relaxed);
      lock.unlock();
      if (woken) break;
      if (engine().retire(*this)) return;
    }
    assigned_.store(false, std::memory_order_relaxed);
    lane = std::move(given_);
  }
}

void Worker::run(LanePtr& lane) {
  const auto has_more = [&] { return !lane->idle() || engine().anyone_waiting(); };
  std::uint64_t done = lane->completed();
  std::uint64_t known = done;  // submitted, when last looked
  for (unsigned count = 1;; ++count, ++done) {
    if (done == known) {
      // More often follows soon; a lane that has come to rest costs its next task a hand-over.
      static_cast<void>(spin_for(has_more));
      if (lane->try_to_rest()) return;
      known = lane->submitted();
    }
    Task& task = lane->front();
    if (task.run == nullptr) {
      Wait& wait = *reinterpret_cast<Wait*>(task.payload);
      if (wait.lane->completed() < wait.until) {
        const LanePtr other = wait.lane;  // the lane may go on, and destroy the wait, before add_waiter is over
        if (other->add_waiter({wait.until, lane, nullptr})) return;
      }
      wait.~Wait();
    } else {
      task_.store(task_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      task.run(task.payload);
    }
    lane->complete_one();
    if (engine().must_yield(*this, *lane, count % 32 == 0)) [[unlikely]] {
      engine().put_back(std::move(lane));
      return;
    }
  }
}

// Engine

void Engine::enqueue(LanePtr lane) {
  ready_[queue_of(*lane)].push_back(std::move(lane));
  update_best();
}

LanePtr Engine::dequeue() {
  for (auto& queue : ready_)
    if (!queue.empty()) {
      LanePtr lane = std::move(queue.front());
      queue.pop_front();
      update_best();
      return lane;
    }
  return nullptr;
}

void Engine::update_best() noexcept {
  int best = nobody;
  for (std::size_t i = ready_.size(); i-- > 0;)
    if (!ready_[i].empty()) best = greatest_priority + static_cast<int>(i);
  best_waiting_.store(best, std::memory_order_relaxed);
}

void Engine::start(LanePtr lane) {
  std::unique_lock lock{mutex_};
  if (free_slots_ > 0) {
    if (hand_over(std::move(lane))) return;
  } else {
    enqueue(std::move(lane));
  }
  if (!monitor_started_) {
    monitor_started_ = true;
    std::thread{[this] { monitor(); }}.detach();
  }
  monitor_wake_.notify_one();
}

/// Gives the lane, and a slot, to an idle worker or a new one; false if there are no more threads to be had.
bool Engine::hand_over(LanePtr lane) {
  --free_slots_;
  if (!idle_.empty()) {
    Worker* const worker = idle_.back();
    idle_.pop_back();
    worker->has_slot_.store(true, std::memory_order_relaxed);
    worker->given_ = std::move(lane);
    worker->assigned_.store(true, std::memory_order_seq_cst);
    if (worker->asleep_.load(std::memory_order_seq_cst)) {
      const std::lock_guard lock{worker->mutex_};
      worker->wake_.notify_one();
    }
    return true;
  }
  auto worker = std::make_unique<Worker>();
  workers_.push_back(worker.get());
  try {
    std::thread thread{[self = worker.get(), lane] {
      self->loop(lane);
      delete self;
    }};
    pthread_getcpuclockid(thread.native_handle(), &worker->cpu_clock_);
    thread.detach();
    static_cast<void>(worker.release());
    return true;
  } catch (const std::system_error&) {  // no more threads for now: the monitor comes back to it
    workers_.pop_back();
    ++free_slots_;
    enqueue(std::move(lane));
    return false;
  }
}

LanePtr Engine::next(Worker& worker) {
  const std::lock_guard lock{mutex_};
  if (!worker.has_slot_.load(std::memory_order_relaxed) && free_slots_ > 0) {
    worker.has_slot_.store(true, std::memory_order_relaxed);
    --free_slots_;
  }
  if (worker.has_slot_.load(std::memory_order_relaxed))
    if (LanePtr lane = dequeue()) return lane;
  give_up_slot(worker);
  idle_.push_back(&worker);
  return nullptr;
}

void Engine::put_back(LanePtr lane) {
  const std::lock_guard lock{mutex_};
  enqueue(std::move(lane));
}

bool Engine::retire(Worker& worker) {
  const std::lock_guard lock{mutex_};
  if (idle_.size() <= static_cast<std::size_t>(cores_)) return false;
  const auto place = std::find(idle_.begin(), idle_.end(), &worker);
  if (place == idle_.end()) return false;  // a lane has just been handed over
  idle_.erase(place);
  workers_.erase(std::find(workers_.begin(), workers_.end(), &worker));
  return true;
}

void Engine::monitor() {
  std::unique_lock lock{mutex_};
  for (;;) {
    monitor_wake_.wait(lock, [&] { return anyone_waiting(); });
    lock.unlock();
    std::this_thread::sleep_for(tick);
    lock.lock();
    const auto now = Clock::now();
    for (Worker* const worker : workers_) {
      if (!anyone_waiting()) break;
      if (!worker->has_slot_.load(std::memory_order_relaxed)) continue;
      const std::uint32_t task = worker->task_.load(std::memory_order_relaxed);
      const auto cpu = worker->cpu_time();
      if (task != worker->seen_task_) {
        worker->seen_task_ = task;
        worker->seen_cpu_ = cpu;
        worker->seen_since_ = now;
        continue;
      }
      const bool blocked = now - worker->seen_since_ >= tick && cpu - worker->seen_cpu_ < tick / 4;
      worker->seen_cpu_ = cpu;
      if (blocked || now - worker->seen_since_ > long_task) give_up_slot(*worker);
    }
    while (free_slots_ > 0) {
      LanePtr lane = dequeue();
      if (lane == nullptr || !hand_over(std::move(lane))) break;
    }
  }
}

}  // namespace runnel::inline RUNNEL_ABI::host
