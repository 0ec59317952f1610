// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "base/immortal.hpp"
#include "base/relax.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
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
  std::atomic<std::uint32_t> task_{1};  // changes with every task and with every lane that is handed over
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_;

  // The engine's lists, guarded by its lock.
  Worker* next_ = nullptr;
  Worker* next_idle_ = nullptr;

  // The monitor's notes.
  clockid_t cpu_clock_{};
  std::uint32_t seen_task_ = 0;
  std::chrono::nanoseconds seen_cpu_{0};
  Clock::time_point seen_since_{};
};

/// Decides which lane runs. As many run as there are cores, the most urgent first. But a host function may block for as long as it
/// likes, and must never hold up another stream: so a monitor watches while lanes are waiting, and lets one more run for each
/// task that has stopped using its core, or that has kept it for a long time.
///
/// Nothing here needs memory, apart from a new thread. Each path that leaves a lane in a queue wakes the monitor, which looks again at
/// every tick while a lane is queued; so a lane that could not be given to a thread is given to one later.
class Engine {
 public:
  void start_first_threads();
  void start(LanePtr lane) noexcept;
  /// The next lane for a worker that has nothing to do; null if it is to sleep.
  [[nodiscard]] LanePtr next(Worker& worker) noexcept;
  /// Whether a worker must put its lane back. `fair`: also for a lane that is merely as urgent.
  [[nodiscard]] bool must_yield(const Worker& worker, const Lane& lane, bool fair) const noexcept {
    const int best = best_waiting_.load(std::memory_order_relaxed);
    return !worker.has_slot_.load(std::memory_order_relaxed) || best < lane.priority() || (fair && best <= lane.priority());
  }
  [[nodiscard]] bool anyone_waiting() const noexcept { return best_waiting_.load(std::memory_order_relaxed) != nobody; }
  void put_back(LanePtr lane) noexcept;
  /// Ends an idle worker if there are more than enough. True if it is to end.
  [[nodiscard]] bool retire(Worker& worker) noexcept;

 private:
  static constexpr int nobody = 1 << 30;
  static constexpr auto tick = 250us;
  static constexpr auto long_task = 10ms;

  [[nodiscard]] static std::size_t queue_of(const Lane& lane) noexcept {
    return static_cast<std::size_t>(lane.priority() - greatest_priority);
  }
  void enqueue(LanePtr lane) noexcept;
  [[nodiscard]] LanePtr dequeue() noexcept;
  void update_best() noexcept;
  [[nodiscard]] bool hand_over(LanePtr& lane) noexcept;
  [[nodiscard]] bool add_worker(LanePtr& lane) noexcept;
  void list_as_idle(Worker& worker) noexcept;
  void give_up_slot(Worker& worker) noexcept {
    if (worker.has_slot_.exchange(false, std::memory_order_relaxed)) ++free_slots_;
  }
  void take_back_slots() noexcept;
  void monitor() noexcept;

  std::mutex mutex_;
  std::array<LaneList, 3> ready_;
  std::atomic<int> best_waiting_{nobody};
  const int cores_ = core_count();
  int free_slots_ = cores_;
  Worker* workers_ = nullptr;
  Worker* idle_ = nullptr;
  int idle_count_ = 0;
  std::condition_variable monitor_wake_;
  bool monitor_started_ = false;
};

namespace {
// Never destroyed: its threads are still there when statics die, and the process ends under them.
Engine& engine() { return detail::immortal<Engine>(); }
}  // namespace

void start_engine() {
  static constinit std::atomic<bool> started{false};
  if (started.load(std::memory_order_acquire)) return;
  engine().start_first_threads();
  started.store(true, std::memory_order_release);
}
void start(LanePtr lane) noexcept { engine().start(std::move(lane)); }

// LaneList

void LaneList::push_back(LanePtr lane) noexcept {
  Lane* const added = lane.get();
  (first_ == nullptr ? first_ : last_->next_) = std::move(lane);
  last_ = added;
}

LanePtr LaneList::pop_front() noexcept {
  LanePtr lane = std::move(first_);
  first_ = std::move(lane->next_);
  return lane;
}

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
      if (submitted_.load(std::memory_order_relaxed) >= room_until_) may_be_full_.store(true, std::memory_order_relaxed);
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
  const std::uint64_t number = completed_.load(std::memory_order_relaxed) + 1;
  completed_.store(number, std::memory_order_seq_cst);
  if (first_awaited_.load(std::memory_order_seq_cst) <= number) [[unlikely]]
    wake_waiters();
}

void Lane::wake_waiters() noexcept {
  for (LaneList woken = take_woken(); !woken.empty();) host::start(woken.pop_front());
}

LaneList Lane::take_woken() noexcept {
  const std::lock_guard lock{waiters_mutex_};
  const std::uint64_t done = completed();
  std::uint64_t first = none;
  LaneList woken, parked;
  while (!parked_.empty()) {
    LanePtr lane = parked_.pop_front();
    const std::uint64_t number = lane->parked_for_;
    if (number > done) first = std::min(first, number);
    (number > done ? parked : woken).push_back(std::move(lane));
  }
  parked_ = std::move(parked);
  waiters_wake_.notify_all();  // under the lock; a thread that has to wait longer announces its number again
  first_awaited_.store(first, std::memory_order_seq_cst);
  return woken;
}

bool Lane::announce_waiter(std::uint64_t number) noexcept {
  if (number < first_awaited_.load(std::memory_order_relaxed)) first_awaited_.store(number, std::memory_order_seq_cst);
  return completed_.load(std::memory_order_seq_cst) < number;
}

bool Lane::park(LanePtr lane, std::uint64_t number) noexcept {
  const std::lock_guard lock{waiters_mutex_};
  if (!announce_waiter(number)) return false;
  lane->parked_for_ = number;
  parked_.push_back(std::move(lane));
  return true;
}

void Lane::wait_until(std::uint64_t number, bool spin) {
  const auto is_done = [&] { return completed() >= number; };
  if (is_done() || (spin && spin_for(is_done))) return;
  std::unique_lock lock{waiters_mutex_};
  while (announce_waiter(number)) waiters_wake_.wait(lock);
}

/// Waits for some room more than one task's, so that a full lane does not wake its callers for each task.
void Lane::make_room() {
  constexpr std::uint64_t batch = 1024;
  const std::uint64_t all = submitted();
  if (all - completed() >= most_pending) wait_until(all - most_pending + batch, false);
  const std::lock_guard lock{lock_};
  room_until_ = completed() + most_pending;
  may_be_full_.store(submitted_.load(std::memory_order_relaxed) >= room_until_, std::memory_order_relaxed);
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
        const LanePtr other = wait.lane;  // the lane may go on, and destroy the wait, before park() has returned
        if (other->park(lane, wait.until)) return;
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

void Engine::enqueue(LanePtr lane) noexcept {
  ready_[queue_of(*lane)].push_back(std::move(lane));
  update_best();
}

LanePtr Engine::dequeue() noexcept {
  for (LaneList& queue : ready_)
    if (!queue.empty()) {
      LanePtr lane = queue.pop_front();
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

/// The monitor, and one worker. Workers end only while more of them than cores are idle, so that one worker stays.
void Engine::start_first_threads() {
  const std::lock_guard lock{mutex_};
  if (!monitor_started_) {
    try {
      std::thread{[this] { monitor(); }}.detach();
    } catch (const std::system_error&) {
      throw std::bad_alloc{};
    }
    monitor_started_ = true;
  }
  LanePtr none;
  if (workers_ == nullptr && !add_worker(none)) throw std::bad_alloc{};
}

void Engine::start(LanePtr lane) noexcept {
  const std::lock_guard lock{mutex_};
  if (free_slots_ > 0 && hand_over(lane)) return;
  enqueue(std::move(lane));
  monitor_wake_.notify_one();
}

/// Gives the lane, and a slot, to an idle worker or a new one; false, with the lane as it was, if no thread can be had.
/// Requires: there is a free slot.
bool Engine::hand_over(LanePtr& lane) noexcept {
  if (idle_ == nullptr && !add_worker(lane)) return false;
  --free_slots_;
  if (lane == nullptr) return true;  // the new worker has it
  Worker* const worker = std::exchange(idle_, idle_->next_idle_);
  --idle_count_;
  worker->has_slot_.store(true, std::memory_order_relaxed);
  worker->task_.store(worker->task_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // the monitor's clock starts anew
  worker->given_ = std::move(lane);
  worker->assigned_.store(true, std::memory_order_seq_cst);
  if (worker->asleep_.load(std::memory_order_seq_cst)) {
    const std::lock_guard lock{worker->mutex_};
    worker->wake_.notify_one();
  }
  return true;
}

/// Starts a worker, with the lane and a slot; without a lane it is idle. False, with nothing changed, if no thread can be had.
bool Engine::add_worker(LanePtr& lane) noexcept {
  try {
    auto worker = std::make_unique<Worker>();
    const bool is_idle = lane == nullptr;
    if (is_idle) worker->has_slot_.store(false, std::memory_order_relaxed);
    std::thread thread{[self = worker.get(), first = lane]() mutable {
      self->loop(std::move(first));
      delete self;
    }};
    pthread_getcpuclockid(thread.native_handle(), &worker->cpu_clock_);
    thread.detach();
    lane = nullptr;
    worker->next_ = std::exchange(workers_, worker.get());
    if (is_idle) list_as_idle(*worker);
    static_cast<void>(worker.release());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const std::system_error&) {
    return false;
  }
}

void Engine::list_as_idle(Worker& worker) noexcept {
  worker.next_idle_ = std::exchange(idle_, &worker);
  ++idle_count_;
}

LanePtr Engine::next(Worker& worker) noexcept {
  const std::lock_guard lock{mutex_};
  if (!worker.has_slot_.load(std::memory_order_relaxed) && free_slots_ > 0) {
    worker.has_slot_.store(true, std::memory_order_relaxed);
    --free_slots_;
  }
  if (worker.has_slot_.load(std::memory_order_relaxed))
    if (LanePtr lane = dequeue()) return lane;
  give_up_slot(worker);
  list_as_idle(worker);
  return nullptr;
}

void Engine::put_back(LanePtr lane) noexcept {
  const std::lock_guard lock{mutex_};
  enqueue(std::move(lane));
  monitor_wake_.notify_one();  // the worker that puts it back may have lost its slot, and then goes to sleep
}

bool Engine::retire(Worker& worker) noexcept {
  const std::lock_guard lock{mutex_};
  if (idle_count_ <= cores_) return false;
  Worker** place = &idle_;
  while (*place != nullptr && *place != &worker) place = &(*place)->next_idle_;
  if (*place == nullptr) return false;  // a lane has just been handed over
  *place = worker.next_idle_;
  --idle_count_;
  for (place = &workers_; *place != &worker;) place = &(*place)->next_;
  *place = worker.next_;
  return true;
}

/// Takes the slot of each worker whose task is blocked or long. Requires: the lock is held.
void Engine::take_back_slots() noexcept {
  const auto now = Clock::now();
  for (Worker* worker = workers_; worker != nullptr; worker = worker->next_) {
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
}

void Engine::monitor() noexcept {
  std::unique_lock lock{mutex_};
  for (;;) {
    monitor_wake_.wait(lock, [&] { return anyone_waiting(); });
    lock.unlock();
    std::this_thread::sleep_for(tick);
    lock.lock();
    if (anyone_waiting()) take_back_slots();
    while (free_slots_ > 0 && anyone_waiting()) {
      if (LanePtr lane = dequeue(); !hand_over(lane)) {
        enqueue(std::move(lane));
        break;
      }
    }
  }
}

}  // namespace runnel::inline RUNNEL_ABI::host
