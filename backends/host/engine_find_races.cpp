// SPDX-License-Identifier: Apache-2.0
/// The engine of a find_races build. Each queue has its own thread for the life of its stream: if
/// one thread ran two streams, ThreadSanitizer would consider their work ordered. No stream waits
/// for a free thread, so priorities have no effect.
#include "engine.hpp"

#include "base/announce.hpp"
#include "base/sync.hpp"

#include <sys/prctl.h>

#include <cstdio>
#include <new>
#include <system_error>

namespace runnel::inline RUNNEL_ABI::host {

/// Runs one queue.
class Worker {
 public:
  /// Gives the queue a worker.
  /// @throws std::bad_alloc if no thread can be created
  static void attach(TaskQueue& queue);
  /// Null if the queue has none.
  [[nodiscard]] static std::shared_ptr<Worker> of(const TaskQueue& queue) noexcept {
    return std::static_pointer_cast<Worker>(queue.runner_);
  }
  /// Makes the thread run the ready queue. Restarts a thread that has ended.
  static void give(const std::shared_ptr<Worker>& self, TaskQueuePtr queue) noexcept;
  /// Makes the thread end when nothing is left to run.
  void close() noexcept;
  /// Sets the thread's name, which reports show.
  void name(const char* text) noexcept;

 private:
  /// Starts the thread, which keeps `self` alive.
  /// @throws std::bad_alloc if no thread can be created
  static void launch(const std::shared_ptr<Worker>& self);
  void loop() noexcept;
  /// Null if the thread must end.
  [[nodiscard]] TaskQueuePtr wait_for_queue() noexcept;
  static void run(TaskQueue& queue) noexcept;
  static void run_front(TaskQueue& queue) noexcept;

  sync::Mutex mutex_;  // protects the following members
  sync::ConditionVariable wake_;
  TaskQueuePtr given_;
  bool closed_ = false;
  bool ended_ = false;
  char name_[16] = {};  // truncated to what the system stores; set before the first task
};

void prepare(TaskQueue& queue) { Worker::attach(queue); }
void start(TaskQueuePtr queue) noexcept {
  const std::shared_ptr<Worker> worker = Worker::of(*queue);
  Worker::give(worker, std::move(queue));
}
bool is_short_of_threads() noexcept { return false; }
void close(TaskQueue& queue) noexcept {
  if (const auto worker = Worker::of(queue)) worker->close();
}
void name(TaskQueue& queue, const char* text) noexcept { Worker::of(queue)->name(text); }

void Worker::attach(TaskQueue& queue) {
  auto worker = std::make_shared<Worker>();
  launch(worker);
  // The queue's destructor closes the worker, too: a stream whose constructor throws later is never
  // closed.
  queue.runner_ = std::shared_ptr<void>{worker.get(), [worker](void*) { worker->close(); }};
}

void Worker::launch(const std::shared_ptr<Worker>& self) try {
  sync::Thread{[self] { self->loop(); }}.detach();
} catch (const std::system_error&) {
  throw std::bad_alloc{};
}

void Worker::give(const std::shared_ptr<Worker>& self, TaskQueuePtr queue) noexcept {
  const std::lock_guard lock{self->mutex_};
  if (self->ended_) try {
      launch(self);
      self->ended_ = false;
    } catch (const std::bad_alloc&) {
      return run(*queue);  // only a wait for the work of a stream that was destroyed meanwhile
    }
  self->given_ = std::move(queue);
  self->wake_.notify_one();
}

void Worker::close() noexcept {
  const std::lock_guard lock{mutex_};
  closed_ = true;
  wake_.notify_one();
}

void Worker::name(const char* text) noexcept {
  const std::lock_guard lock{mutex_};
  std::snprintf(name_, sizeof name_, "%s", text);
}

void Worker::loop() noexcept {
  while (const TaskQueuePtr queue = wait_for_queue()) {
    // ThreadSanitizer records only names that a thread gives to itself.
    if (name_[0] != '\0') prctl(PR_SET_NAME, name_);
    run(*queue);
  }
}

TaskQueuePtr Worker::wait_for_queue() noexcept {
  std::unique_lock lock{mutex_};
  wake_.wait(lock, [&] { return given_ != nullptr || closed_; });
  ended_ = given_ == nullptr;
  return std::move(given_);
}

void Worker::run(TaskQueue& queue) noexcept {
  sync::happens_after(&queue.completed_);  // An earlier thread of the queue may have ended.
  do {
    while (!queue.is_idle()) {
      run_front(queue);
      queue.complete_one();
    }
  } while (!queue.try_to_become_idle());
}

void Worker::run_front(TaskQueue& queue) noexcept {
  Task& task = queue.front();
  sync::happens_after(&task);
  const sync::CalledBy caller{queue.first_->callers[queue.completed() % TaskBlock::size]};
  if (task.run != nullptr) {
    while (!task.run(task.payload)) {
    }
    return;
  }
  Wait& wait = *reinterpret_cast<Wait*>(task.payload);
  wait.block_caller(false);
  wait.~Wait();
}

}  // namespace runnel::inline RUNNEL_ABI::host
