// SPDX-License-Identifier: Apache-2.0
/// The comparison for the host backend: a simple queue with a mutex, a condition variable, a deque and one thread.
#include "batches.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace {

using bench::repeated;
using bench::repeated_singly;
using bench::timed_batches;

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

class PlainQueue {
 public:
  PlainQueue() : thread_{[this] { run(); }} {}
  ~PlainQueue() {
    enqueue({});
    thread_.join();
  }
  void enqueue(std::function<void()> task) {
    {
      const std::lock_guard lock{mutex_};
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
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
  std::thread thread_;
};

void host_function(benchmark::State& state) {
  PlainQueue a;
  timed_batches(
      state, bench::enqueued_batch, [&] { a.enqueue([] {}); }, [&] { a.drain(); });
}
BENCHMARK(host_function)->Name("host function, enqueue/raw")->Apply(repeated);

void round_trip(benchmark::State& state) {
  PlainQueue a;
  for (auto _ : state) a.drain();
}
BENCHMARK(round_trip)->Name("host function, round trip/raw")->Apply(repeated_singly);

void record_and_wait(benchmark::State& state) {
  PlainQueue a, b;
  timed_batches(
      state, bench::enqueued_batch,
      [&] {
        const auto event = std::make_shared<PlainEvent>();
        a.enqueue([event] { event->set(); });
        b.enqueue([event] { event->wait(); });
      },
      [&] { b.drain(); });
}
BENCHMARK(record_and_wait)->Name("record + wait/raw")->Apply(repeated);

void record_and_wait_busy(benchmark::State& state) {
  PlainQueue a, b;
  timed_batches(
      state, bench::enqueued_batch,
      [&] {
        const auto event = std::make_shared<PlainEvent>();
        a.enqueue([] {});
        a.enqueue([event] { event->set(); });
        b.enqueue([event] { event->wait(); });
      },
      [&] { b.drain(); });
}
BENCHMARK(record_and_wait_busy)->Name("host function + record + wait/raw")->Apply(repeated);

void create_and_destroy(benchmark::State& state) {
  timed_batches(
      state, 100, [] { const PlainQueue queue; }, [] {});
}
BENCHMARK(create_and_destroy)->Name("stream create + destroy/raw")->Apply(repeated);

}  // namespace
