// SPDX-License-Identifier: Apache-2.0
/// The comparison for the host backend: a simple queue with a mutex, a condition variable, a deque
/// and one thread, or several.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

class PlainEvent {
 public:
  void reset() {
    const std::lock_guard lock{mutex_};
    done_ = false;
  }
  void set() {
    const std::lock_guard lock{mutex_};
    done_ = true;
    wake_.notify_all();
  }
  void wait() {
    std::unique_lock lock{mutex_};
    wake_.wait(lock, [&] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
};

/// With one thread a queue, whose tasks run in order; with several a pool.
class PlainQueue {
 public:
  explicit PlainQueue(std::size_t threads = 1) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  PlainQueue(const PlainQueue&) = delete;
  PlainQueue& operator=(const PlainQueue&) = delete;
  ~PlainQueue() {
    for (std::size_t i = 0; i < threads_.size(); ++i) enqueue({});
  }
  void enqueue(std::function<void()> task) {
    {
      const std::lock_guard lock{mutex_};
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
  /// Waits for all earlier tasks. Requires: there is one thread.
  void drain() {
    PlainEvent done;
    enqueue([&] { done.set(); });
    done.wait();
  }

 private:
  void run() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock{mutex_};
        wake_.wait(lock, [&] { return !tasks_.empty(); });
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (!task) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::jthread> threads_;
};

}  // namespace bench
