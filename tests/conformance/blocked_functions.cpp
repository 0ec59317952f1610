// SPDX-License-Identifier: Apache-2.0
// Host functions that block until functions of other streams have run. A stream that can continue
// must continue.

#include "support.hpp"

namespace conformance::blocked_functions_cases {
using std::chrono::milliseconds;

class BlockedFunctions : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    SKIP_IF(!IsSkipped() && !host_functions_overlap(),
            "the runtime runs one host function at a time");
  }
};

/// Flags that host functions set and wait for.
class Flags {
 public:
  explicit Flags(size_t count) : raised_(count) {}
  void raise(size_t i) {
    const std::lock_guard lock{mutex_};
    raised_[i] = true;
    changed_.notify_all();
  }
  /// Returns false if the flag was not raised within `limit`.
  bool wait(size_t i, std::chrono::seconds limit = patience) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, limit, [&] { return raised_[i]; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> raised_;
};

void spin(milliseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

/// The functions of all streams block. Only the second function of the last stream can unblock
/// them, so that function must run although the first one was blocked. The number of streams
/// varies, and so does the number of those that have a core.
TEST_F(BlockedFunctions, AStreamGoesOnWhenItsOwnFunctionWasBlocked) {
  const size_t most = 2 * std::max(4U, std::thread::hardware_concurrency()) + 1;
  for (size_t count = 1; count <= std::min<size_t>(most, 33); ++count) {
    const auto flags = std::make_shared<Flags>(count + 2);
    const auto late = shared_count();
    const auto block = [=](size_t announce, size_t until) {
      flags->raise(announce);
      if (!flags->wait(until, 5s)) ++*late;
    };
    Streams streams(count + 1);
    streams[count].launch_host_func([=] { block(count, count - 1); });
    ASSERT_TRUE(flags->wait(count));
    streams[count].launch_host_func([=] { flags->raise(count + 1); });
    for (size_t i : range(count)) streams[i].launch_host_func([=] { block(i, count + 1); });
    for (const Stream& stream : streams) stream.synchronize();
    ASSERT_EQ(late->load(), 0) << count << " streams waited for a stream that could have continued";
  }
}

/// Functions on streams of any priority. Each waits for earlier functions of other streams, and
/// some keep a core busy for long.
class Graph {
 public:
  explicit Graph(uint32_t seed) : random_{seed} {
    const PriorityRange all = Device::current().priority_range();
    const size_t lines = 3 + pick(10);
    repeat(lines, [&] {
      streams_.emplace_back(StreamOptions{.priority = pick(2) == 0 ? all.greatest : all.least});
    });
    for (size_t i : range(functions)) launch(i);
  }

  [[nodiscard]] bool finishes() {
    for (const Stream& stream : streams_) stream.synchronize();
    return late_->load() == 0;
  }

 private:
  static constexpr size_t functions = 40;

  size_t pick(size_t n) { return random_() % n; }
  void launch(size_t i) {
    std::vector<size_t> earlier;
    if (i > 0 && pick(3) > 0) repeat(2, [&] { earlier.push_back(pick(i)); });
    const milliseconds busy{pick(12) == 0 ? 12 : 0};
    streams_[pick(streams_.size())].launch_host_func([=, flags = flags_, late = late_] {
      for (const size_t other : earlier)
        if (!flags->wait(other, 10s)) ++*late;
      spin(busy);
      flags->raise(i);
    });
  }

  std::mt19937 random_;
  std::shared_ptr<Flags> flags_ = std::make_shared<Flags>(functions);
  std::shared_ptr<std::atomic_int> late_ = shared_count();
  Streams streams_;
};

TEST_F(BlockedFunctions, RandomGraphsAlwaysFinish) {
  const char* given = std::getenv("RUNNEL_SEED");
  const uint32_t start =
      given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : 1;
  const uint32_t graphs = long_tests() ? 3000 : 200;
  for (uint32_t seed = start; seed < start + graphs; ++seed)
    ASSERT_TRUE(Graph{seed}.finishes()) << "RUNNEL_SEED=" << seed;
}

TEST_F(BlockedFunctions, ShortFunctionsOfAnotherStreamAreNotHeldUp) {
  constexpr size_t blocked = 12;
  std::atomic_bool stop{false};
  Streams streams(blocked);
  const Stream quick;
  std::vector<std::thread> threads;
  // The functions of these streams block for longer than the library keeps a core for a blocked
  // function.
  for (size_t i : range(blocked))
    threads.emplace_back([&, i] {
      while (!stop) {
        repeat(3, [&] {
          streams[i].launch_host_func([] { std::this_thread::sleep_for(milliseconds{3}); });
        });
        streams[i].synchronize();
      }
    });
  Standstills machine;
  std::chrono::nanoseconds longest{0};
  repeat(300, [&] {
    const auto before = Clock::now();
    enqueue_nothing(quick);
    quick.synchronize();
    longest = std::max<std::chrono::nanoseconds>(longest, Clock::now() - before);
  });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(longest - machine.longest(), 1s);
}

}  // namespace conformance::blocked_functions_cases
