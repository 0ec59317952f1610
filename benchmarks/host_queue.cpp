// SPDX-License-Identifier: Apache-2.0
/// How the host backend's streams compare with a plain queue while the thread that runs the tasks
/// is awake or asleep, and with a plain pool of threads when work spreads over many streams and
/// comes together again.
#include "batches.hpp"
#include "plain_queue.hpp"

#include <runnel/runnel.hpp>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace {

using namespace runnel;
using bench::PlainEvent;
using bench::PlainQueue;
using bench::repeated;
using Clock = std::chrono::steady_clock;

constexpr int batch = 500;

[[nodiscard]] double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Whether the consumer starts with the batch, or stays in a task of its own until the batch is
/// enqueued.
enum class Consumer { runs, is_busy };

/// The consumer is in a task when the batch begins, so that it need not be woken.
template <class Enqueue, class Drain>
void consumer_awake(benchmark::State& state, Consumer consumer, Enqueue enqueue, Drain drain) {
  for (auto _ : state) {
    std::atomic<bool> running{false}, open{false};
    enqueue([&] {
      running = true;
      while (!open) {
      }
    });
    while (!running) {
    }
    open = consumer == Consumer::runs;
    const auto start = Clock::now();
    for (int i = 0; i < batch; ++i) enqueue([] {});
    state.SetIterationTime(seconds_since(start) / batch);
    open = true;
    drain();
  }
}

/// The consumer has gone to sleep before the batch: the first task wakes it, and it runs the others
/// while they are enqueued.
template <class Enqueue, class Drain>
void consumer_asleep(benchmark::State& state, Enqueue enqueue, Drain drain) {
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    const auto start = Clock::now();
    for (int i = 0; i < batch; ++i) enqueue([] {});
    state.SetIterationTime(seconds_since(start) / batch);
    drain();
  }
}

/// One task that all others come after, many small tasks, and a wait for all. The time of one small
/// task.
constexpr int fan_tasks = 1000, fan_streams = 64;
template <class Run>
void fan(benchmark::State& state, Run run) {
  std::vector<int> results(fan_tasks);
  run(results);
  for (auto _ : state) {
    std::fill(results.begin(), results.end(), 0);
    const auto start = Clock::now();
    run(results);
    state.SetIterationTime(seconds_since(start) / fan_tasks);
    if (std::count(results.begin(), results.end(), 1) != fan_tasks)
      state.SkipWithError("a task did not run once");
  }
}

void awake_plain(benchmark::State& state, Consumer consumer) {
  PlainQueue queue;
  consumer_awake(
      state, consumer, [&](auto task) { queue.enqueue(std::move(task)); }, [&] { queue.drain(); });
}
void awake(benchmark::State& state, Consumer consumer) {
  const Stream stream;
  consumer_awake(
      state, consumer, [&](auto task) { stream.launch_host_func(std::move(task)); },
      [&] { stream.synchronize(); });
}
BENCHMARK_CAPTURE(awake_plain, runs, Consumer::runs)
    ->Name("host function, enqueue, consumer awake/raw")
    ->Apply(repeated);
BENCHMARK_CAPTURE(awake, runs, Consumer::runs)
    ->Name("host function, enqueue, consumer awake/runnel")
    ->Apply(repeated);
BENCHMARK_CAPTURE(awake_plain, is_busy, Consumer::is_busy)
    ->Name("host function, enqueue, consumer busy/raw")
    ->Apply(repeated);
BENCHMARK_CAPTURE(awake, is_busy, Consumer::is_busy)
    ->Name("host function, enqueue, consumer busy/runnel")
    ->Apply(repeated);

void asleep_plain(benchmark::State& state) {
  PlainQueue queue;
  consumer_asleep(
      state, [&](auto task) { queue.enqueue(std::move(task)); }, [&] { queue.drain(); });
}
BENCHMARK(asleep_plain)->Name("host function, enqueue, consumer asleep/raw")->Apply(repeated);
void asleep(benchmark::State& state) {
  const Stream stream;
  consumer_asleep(
      state, [&](auto task) { stream.launch_host_func(std::move(task)); },
      [&] { stream.synchronize(); });
}
BENCHMARK(asleep)->Name("host function, enqueue, consumer asleep/runnel")->Apply(repeated);

/// The processors that this process may use, which may be fewer than there are: the backend has as
/// many threads.
[[nodiscard]] unsigned processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set))
                                                     : std::thread::hardware_concurrency();
}

void fan_plain(benchmark::State& state) {
  PlainQueue pool{std::max(2U, processors())};
  fan(state, [&](std::vector<int>& results) {
    PlainEvent done;
    std::atomic<int> left{fan_tasks};
    pool.enqueue([&] {
      for (int& result : results)
        pool.enqueue([&] {
          ++result;
          if (--left == 0) done.set();
        });
    });
    done.wait();
  });
}
BENCHMARK(fan_plain)->Name("1000 tasks over 64 streams, fan-out and fan-in/raw")->Apply(repeated);
void fan_streams_of_ours(benchmark::State& state) {
  const Stream first;
  std::vector<Stream> streams(fan_streams);
  fan(state, [&](std::vector<int>& results) {
    first.launch_host_func([] {});
    for (const Stream& stream : streams) stream.wait_stream(first);
    for (int i = 0; i < fan_tasks; ++i)
      streams[static_cast<std::size_t>(i % fan_streams)].launch_host_func(
          [&result = results[static_cast<std::size_t>(i)]] { ++result; });
    for (const Stream& stream : streams) first.wait_stream(stream);
    first.synchronize();
  });
}
BENCHMARK(fan_streams_of_ours)
    ->Name("1000 tasks over 64 streams, fan-out and fan-in/runnel")
    ->Apply(repeated);

}  // namespace
