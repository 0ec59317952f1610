// SPDX-License-Identifier: Apache-2.0
#include "soak.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace load {
namespace {
using namespace runnel;

constexpr size_t count = 1024;         // numbers in each buffer of a lane
constexpr size_t large = 128 * count;  // a pageable copy that a GPU's backend stages

/// A stream that lives long, and memory that only this stream touches.
struct Lane {
  Stream stream;
  Event event{stream};
  DeviceBuffer<uint32_t> device{count, stream}, other{count, stream};
  PinnedBuffer<uint32_t> pinned{count};
  std::vector<uint32_t> pageable = std::vector<uint32_t>(count);
  DeviceBuffer<uint32_t> large_device{large, stream};
  std::vector<uint32_t> large_in = std::vector<uint32_t>(large, 11U),
                        large_out = std::vector<uint32_t>(large, 11U);
  uint32_t value = 0;     // what `device` holds once the stream is done
  uint64_t enqueued = 0;  // host functions
  std::atomic<uint64_t> ran{0};
  bool has_thrown = false;  // a host function threw since the last synchronize()
};

/// What a host function throws now and then.
struct Mine {};

/// What one thread does. Each operation is one call that enqueues, records, waits, asks, makes or
/// destroys something.
class Hand {
 public:
  Hand(const SoakOptions& options, int number, StreamPool& pool, Verdict& verdict,
       std::mutex& verdict_mutex)
      : random_{options.seed * 1000 + static_cast<uint64_t>(number)},
        pool_{pool},
        verdict_{verdict},
        verdict_mutex_{verdict_mutex} {
    for (int i = 0; i < options.lanes; ++i) lanes_.push_back(std::make_unique<Lane>());
    for (const auto& lane : lanes_) restart(*lane);
  }

  void operation() {
    const unsigned kind = pick(1000);
    Lane& lane = any();
    if (kind < 250)
      launch(lane);
    else if (kind < 600)
      order(kind, lane);
    else if (kind < 900)
      move(kind, lane);
    else if (kind < 998)
      make(kind, lane);
    else
      check(lane);
  }
  void finish() {
    for (const auto& lane : lanes_) check(*lane);
  }

 private:
  unsigned pick(unsigned end) { return static_cast<unsigned>(random_() % end); }
  Lane& any() { return *lanes_[pick(static_cast<unsigned>(lanes_.size()))]; }

  void launch(Lane& lane) {
    lane.stream.launch_host_func(
        [&ran = lane.ran] { ran.fetch_add(1, std::memory_order_relaxed); });
    ++lane.enqueued;
  }
  void order(unsigned kind, Lane& lane) {
    if (kind < 350)
      lane.stream.record_event(lane.event);
    else if (kind < 450)
      lane.stream.wait_event(any().event);
    else if (kind < 520)
      lane.stream.wait_stream(any().stream);
    else if (kind < 570)
      static_cast<void>(lane.stream.query());
    else if (kind < 590)
      static_cast<void>(lane.event.query());
    else
      lane.stream.wait_stream(lane.stream.device().default_stream());
  }
  void move(unsigned kind, Lane& lane) {
    if (kind < 680)
      copy(lane.stream, lane.other, lane.device);
    else if (kind < 740)
      copy(lane.stream, lane.pinned, lane.device);
    else if (kind < 800)
      fill(lane.stream, lane.device, lane.value = pick(1U << 30));
    else if (kind < 860)
      restart(lane);
    else
      copy(lane.stream, lane.pageable, lane.device);
  }
  /// Objects that live for a moment.
  void make(unsigned kind, Lane& lane) {
    if (kind < 930) {
      const Event event{lane.stream};
      any().stream.wait_event(event);
    } else if (kind < 950) {
      const TimedEvent event{lane.stream};
    } else if (kind < 965) {
      const Stream stream{StreamOptions{
          .priority = pick(2) == 0 ? Priority::high : Priority::normal, .blocking = pick(8) == 0}};
      stream.wait_stream(lane.stream);
      lane.stream.wait_stream(stream);
    } else if (kind < 980) {
      DeviceBuffer<uint32_t> buffer{count, lane.stream};
      fill(lane.stream, buffer, 7U);
      if (pick(2) == 0) buffer.record_stream(any().stream);
    } else if (kind < 990) {
      PinnedBuffer<uint32_t> buffer{count};
      copy(lane.stream, buffer, lane.device);
    } else if (kind < 991) {
      copy(lane.stream, lane.large_device, lane.large_in);
      copy(lane.stream, lane.large_out, lane.large_device);
    } else if (kind < 992) {
      lane.stream.launch_host_func([] { throw Mine{}; });
      lane.has_thrown = true;
    } else {
      const StreamLease lease = pool_.acquire();
      lease.wait_stream(lane.stream);
      const StreamGuard with{lease};
    }
  }
  /// Gives the lane's memory a known value again.
  void restart(Lane& lane) { fill(lane.stream, lane.device, lane.value = pick(1U << 30)); }
  void check(Lane& lane) {
    copy(lane.stream, lane.pinned, lane.device);
    copy(lane.stream, lane.pageable, lane.device);
    bool delivered = false;
    try {
      lane.stream.synchronize();
    } catch (const Mine&) {
      delivered = true;
    }
    const auto is_right = [&](uint32_t x) { return x == lane.value; };
    const bool bytes = std::all_of(lane.pinned.begin(), lane.pinned.end(), is_right) &&
                       std::all_of(lane.pageable.begin(), lane.pageable.end(), is_right) &&
                       lane.large_in == lane.large_out;
    const bool exception = delivered == std::exchange(lane.has_thrown, false);
    const bool functions = lane.ran.load() == lane.enqueued;
    if (bytes && functions && exception) return;
    const std::lock_guard lock{verdict_mutex_};
    verdict_.require(bytes, "wrong bytes");
    verdict_.require(exception, delivered ? "an exception was delivered twice"
                                          : "an exception of a host function is lost");
    verdict_.require(functions, std::to_string(lane.ran.load()) + " functions ran of " +
                                    std::to_string(lane.enqueued));
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  StreamPool& pool_;
  Verdict& verdict_;
  std::mutex& verdict_mutex_;
};

/// What the threads share.
struct Progress {
  std::atomic_long operations{0};
  std::atomic_int at_work{0};
  std::atomic_bool stop{false};
};

void work(Hand& hand, long operations, Progress& progress) {
  constexpr long batch = 256;
  for (long done = 0; done < operations && !progress.stop; done += batch) {
    for (long i = 0; i < std::min(batch, operations - done); ++i) hand.operation();
    progress.operations += std::min(batch, operations - done);
  }
  hand.finish();
  --progress.at_work;
}

/// Prints the figures at each interval until the threads have ended, and returns them.
std::vector<Figures> watch(const SoakOptions& options, Progress& progress) {
  using Clock = std::chrono::steady_clock;
  std::vector<Figures> all;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  print_heading();
  double next = 0;
  while (progress.at_work > 0) {
    if (seconds() >= options.seconds) progress.stop = true;
    if (seconds() >= next) {
      next += options.interval;
      all.push_back(figures());
      print(progress.operations, seconds(), all.back());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  all.push_back(figures());
  print(progress.operations, seconds(), all.back());
  return all;
}

/// The largest of a figure among those of a part of the run.
template <class Read>
long most(const std::vector<Figures>& all, size_t from, size_t to, Read read) {
  long found = 0;
  for (size_t i = from; i < std::max(to, from + 1) && i < all.size(); ++i)
    found = std::max(found, read(all[i]));
  return found;
}

void judge(const SoakOptions& options, const std::vector<Figures>& all, Verdict& verdict) {
  const size_t fifth = std::max<size_t>(all.size() / 5, 1);
  const auto grown = [&](auto read) {
    return most(all, fifth, all.size(), read) - most(all, 0, fifth + 1, read);
  };
  const long memory = grown([](const Figures& f) { return f.resident_kib; }) / 1024;
  const long events = grown(
      [](const Figures& f) { return static_cast<long>(f.live.pooled_events + f.live.events); });
  const long descriptors = grown([](const Figures& f) { return f.descriptors; });
  const long threads = most(all, 0, all.size(), [](const Figures& f) { return f.threads; });
  std::printf(
      "after the first fifth: memory %+ld MiB, events %+ld, file descriptors %+ld; at most %ld "
      "threads\n",
      memory, events, descriptors, threads);
  verdict.require(memory <= options.growth_mib, "memory grows");
  verdict.require(events <= 4096, "events grow");
  verdict.require(descriptors <= 8, "file descriptors grow");
  // A stream with work may hold a thread, and the library keeps a few threads of its own.
  verdict.require(threads <= options.threads * (options.lanes + 1) + 128,
                  "there are too many threads");
}

}  // namespace

void soak(const SoakOptions& options, Verdict& verdict) {
  // Staged copies take up to 512 MiB over time, which would look like a leak.
  Staging::set_options({.memory = size_t{32} << 20U});
  Progress progress;
  std::mutex verdict_mutex;
  std::vector<Figures> all;
  {
    StreamPool pool{Device::current()};
    std::vector<std::unique_ptr<Hand>> hands;
    for (int i = 0; i < options.threads; ++i)
      hands.push_back(std::make_unique<Hand>(options, i, pool, verdict, verdict_mutex));
    progress.at_work = options.threads;
    std::vector<std::jthread> threads;
    for (const auto& hand : hands)
      threads.emplace_back([&, each = options.operations / options.threads] {
        try {
          work(*hand, each, progress);
        } catch (const std::exception& error) {
          const std::lock_guard lock{verdict_mutex};
          verdict.require(false, error.what());
          --progress.at_work;
        }
      });
    all = watch(options, progress);
  }
  Device::current().synchronize();
  judge(options, all, verdict);
}

}  // namespace load
