// SPDX-License-Identifier: Apache-2.0
/// Load: many threads that enqueue, many live streams, and a soak. Prints what the process uses,
/// and exits with 1 if anything is wrong or grows without bound.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "figures.hpp"
#include "soak.hpp"

namespace {
using namespace runnel;
using namespace load;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The functions of one thread: each must run after the one before.
struct Line {
  long enqueued = 0;
  long ran = 0;
  bool in_order = true;
};

/// Prints the figures each second until the threads have ended.
void watch(const std::atomic_long& done, const std::atomic_int& at_work, Clock::time_point start,
           Figures& most) {
  double next = 0;
  while (at_work > 0) {
    if (seconds_since(start) >= next) {
      next += 5;
      const Figures now = figures();
      most.resident_kib = std::max(most.resident_kib, now.resident_kib);
      most.threads = std::max(most.threads, now.threads);
      print(done, seconds_since(start), now);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
}

void enqueue(int thread_count, long each, int stream_count, Verdict& verdict) {
  std::printf("%d threads x %ld host functions on %d streams\n", thread_count, each, stream_count);
  std::vector<Stream> streams(static_cast<size_t>(stream_count));
  std::vector<Line> lines(static_cast<size_t>(thread_count));
  std::atomic_long done{0};
  std::atomic_int at_work{thread_count};
  Figures most;
  print_heading();
  const auto start = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < lines.size(); ++i)
      threads.emplace_back([&, &line = lines[i], &stream = streams[i % streams.size()]] {
        for (; line.enqueued < each; ++line.enqueued) {
          stream.launch_host_func([&line, k = line.enqueued] {
            line.in_order = line.in_order && line.ran == k;
            ++line.ran;
          });
          if (line.enqueued % 1024 == 0) done += std::min(1024L, each - line.enqueued);
        }
        --at_work;
      });
    watch(done, at_work, start, most);
  }
  for (const Stream& stream : streams) stream.synchronize();
  print(done, seconds_since(start), figures());
  for (const Line& line : lines)
    verdict.require(line.in_order && line.ran == each,
                    std::to_string(line.ran) + " functions of a thread ran, or in another order");
  // A stream holds a bounded number of functions, and then holds its caller.
  verdict.require(most.resident_kib < (1L << 20) + stream_count * (32L << 10),
                  "pending functions take too much memory");
}

void live_streams(int stream_count, int rounds, Verdict& verdict) {
  std::printf(
      "%d live streams, %d rounds: a function in each, then each waits for the one before\n",
      stream_count, rounds);
  print_heading();
  const auto start = Clock::now();
  std::vector<Stream> streams(static_cast<size_t>(stream_count));
  // each function must see what the function before has left, so that no two touch it at once
  long value = 0;
  bool in_order = true;
  long expected = 0;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < streams.size(); ++i) {
      streams[i].wait_stream(streams[i == 0 ? streams.size() - 1 : i - 1]);
      streams[i].launch_host_func([&, mine = expected++] {
        in_order = in_order && value == mine;
        ++value;
      });
    }
    if (round % std::max(1, rounds / 4) == 0) print(expected, seconds_since(start), figures());
  }
  for (const Stream& stream : streams) stream.synchronize();
  const Figures end = figures();
  print(expected, seconds_since(start), end);
  verdict.require(in_order && value == expected,
                  "a function ran before the one that it had to wait for");
  verdict.require(end.live.events + end.live.pooled_events <= 2 * streams.size() + 64,
                  "waiting makes events without bound");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Loads the library with many threads, many streams and many operations, and checks that "
      "nothing grows without bound."};
  app.require_subcommand(1);
  int threads = 64, stream_count = 16, live = 1000, rounds = 100;
  long each = 1'000'000;
  SoakOptions options;
  CLI::App& many = *app.add_subcommand("enqueue", "many threads enqueue host functions");
  many.add_option("--threads", threads)->capture_default_str()->check(CLI::PositiveNumber);
  many.add_option("--each", each, "functions of each thread")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  many.add_option("--streams", stream_count, "streams that the threads share")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI::App& alive = *app.add_subcommand("streams", "many live streams");
  alive.add_option("--count", live)->capture_default_str()->check(CLI::PositiveNumber);
  alive.add_option("--rounds", rounds)->capture_default_str()->check(CLI::PositiveNumber);
  CLI::App& mixed = *app.add_subcommand("soak", "operations of all kinds");
  mixed.add_option("--operations", options.operations)
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  mixed.add_option("--threads", options.threads)->capture_default_str()->check(CLI::PositiveNumber);
  mixed.add_option("--lanes", options.lanes, "long-lived streams of each thread")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  mixed.add_option("--seconds", options.seconds, "end after this time");
  mixed.add_option("--interval", options.interval, "seconds between two lines of figures")
      ->capture_default_str();
  mixed.add_option("--seed", options.seed)->capture_default_str();
  mixed
      .add_option("--growth", options.growth_mib,
                  "MiB that memory may grow by after the first fifth")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  if (Device::count() == 0) {
    std::printf("no device: %s\n", std::string{Device::why_no_device()}.c_str());
    return 77;
  }
  Verdict verdict;
  if (many.parsed()) enqueue(threads, each, stream_count, verdict);
  if (alive.parsed()) live_streams(live, rounds, verdict);
  if (mixed.parsed()) soak(options, verdict);
  Staging::trim();
  PinnedPool::trim();
  verdict.require_nothing_alive();
  std::printf(verdict.status() == 0 ? "all is well\n" : "NOT well\n");
  return verdict.status();
}
