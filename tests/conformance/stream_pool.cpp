// SPDX-License-Identifier: Apache-2.0
// StreamPool. Each of its streams has one holder at a time.

#include "support.hpp"

namespace conformance::stream_pool_cases {
using StreamPools = Conformance;

TEST_F(StreamPools, ReturnedStreamsAreReusedOldestFirst) {
  StreamPool pool{device(), {.size = 4}};
  std::vector<uint64_t> ids;
  repeat(200, [&] { ids.push_back(pool.acquire().id()); });
  EXPECT_EQ((std::set<uint64_t>{ids.begin(), ids.end()}.size()), 4U);
  EXPECT_EQ(std::ranges::count(ids, default_stream().id()), 0);
  EXPECT_EQ(pool.acquire().device(), pool.device());
  for (size_t i = 4; i < ids.size(); ++i) EXPECT_EQ(ids[i], ids[i - 4]) << i;
  EXPECT_EQ(pool.growth(), 0U);
  EXPECT_EQ(pool.size(), 4U);
  EXPECT_EQ(pool.leased(), 0U);
}

TEST_F(StreamPools, APoolGrowsToItsMaximumWhenAllAreLeased) {
  StreamPool pool{device(), {.size = 1, .max = 3}};
  auto a = pool.acquire();
  auto b = pool.acquire();
  EXPECT_EQ(pool.growth(), 1U);
  {
    auto c = pool.acquire();
    EXPECT_EQ(pool.size(), 3U);
    EXPECT_EQ(pool.leased(), 3U);
    EXPECT_ERROR(pool_exhausted, pool.acquire());
    EXPECT_EQ(pool.leased(), 3U);
  }
  auto again = pool.acquire();
  EXPECT_EQ(pool.growth(), 2U);
}

TEST_F(StreamPools, StreamsHaveTheRequestedOptions) {
  char name[] = "pooled";
  StreamPool pool{
      device(),
      {.size = 1, .stream = {.priority = Priority::high, .blocking = true, .name = name}}};
  std::fill(std::begin(name), std::end(name) - 1, 'x');  // the pool has a copy
  auto made_at_once = pool.acquire();
  auto made_later = pool.acquire();
  for (const StreamLease* lease : {&made_at_once, &made_later}) {
    EXPECT_EQ(lease->priority(), device().priority_range().greatest);
    EXPECT_TRUE(lease->is_blocking());
    EXPECT_STREQ(lease->name(), "pooled");
  }
}

TEST_F(StreamPools, AStreamNeverHasTwoHolders) {
  StreamPool pool{device(), {.size = 4}};
  std::mutex mutex;
  std::set<uint64_t> held;
  on_threads(16, [&](int) {
    repeat(200, [&] {
      const StreamLease lease = pool.acquire();
      {
        const std::lock_guard lock{mutex};
        EXPECT_TRUE(held.insert(lease.id()).second) << "two holders of one stream";
      }
      enqueue_nothing(lease);
      const std::lock_guard lock{mutex};
      held.erase(lease.id());
    });
  });
  EXPECT_EQ(pool.leased(), 0U);
  EXPECT_EQ(pool.size(), 4 + pool.growth());
  EXPECT_LE(pool.size(), 16U);
}

TEST_F(StreamPools, WorkOfTheNextHolderRunsAfterThePreviousHolders) {
  StreamPool pool{device(), {.size = 1}};
  Log log;
  Gate gate;
  {
    auto lease = pool.acquire();
    gate.close_on(lease);
    log.write(lease, "first");
  }
  auto lease = pool.acquire();
  log.write(lease, "second");
  EXPECT_BEHIND(gate, lease);
  EXPECT_LOG(log, "first", "second");
}

TEST_F(StreamPools, LeasesMoveAndOutliveThePool) {
  const auto before = live_objects().streams;
  {
    std::optional<StreamPool> pool{std::in_place, device(), StreamPoolOptions{.size = 2}};
    auto lease = pool->acquire();
    pool.reset();
    EXPECT_RUNS(lease);
    StreamLease moved{std::move(lease)};
    EXPECT_FALSE(lease.is_valid());  // NOLINT: this test uses moved-from objects
    EXPECT_ERROR(invalid_handle, lease.synchronize());
    EXPECT_RUNS(moved);
  }
  EXPECT_EQ(live_objects().streams, before);
}

TEST_F(StreamPools, ALeaseThatEndsInACaptureLeavesNoneToTheNextHolder) {
  StreamPool pool{device(), {.size = 1, .max = 1}};
  {
    const auto lease = pool.acquire();
    begin_capture(lease);
    lease.launch_host_func([] { ADD_FAILURE() << "the work of a capture that nobody ended ran"; });
  }
  const auto next = pool.acquire();
  EXPECT_FALSE(next.is_capturing());
  EXPECT_ERROR(capture, end_capture(next));
  EXPECT_RUNS(next);
}

TEST_F(StreamPools, ALeaseThatEndsOnAnotherThreadThanItsCaptureIsReplaced) {
  StreamPool pool{device(), {.size = 1, .max = 1}};
  std::optional<StreamLease> lease{pool.acquire()};
  const StreamRef captured = *lease;
  begin_capture(captured);
  on_thread([&] { lease.reset(); });
  EXPECT_EQ(pool.size(), 0U);
  EXPECT_EQ(pool.leased(), 0U);
  EXPECT_ERROR(invalid_handle, end_capture(captured));
  const auto next = pool.acquire_for(10ms);
  ASSERT_TRUE(next.has_value());
  EXPECT_FALSE(next->is_capturing());
  EXPECT_RUNS(*next);
  // the thread that began the capture is in none any more
  const DeviceInts memory{100, StreamRef{*next}};
  const PinnedInts pinned{1 << 20};
  EXPECT_ERROR(pool_exhausted, pool.acquire());
}

TEST_F(StreamPools, ALeaseThatEndsWithinAnothersCaptureIsNotLeasedElsewhereBeforeItsEnd) {
  StreamPool pool{device(), {.size = 1, .max = 2}};
  const Stream captured;
  uint64_t used = 0, again = 0;
  std::atomic_int runs_of_graph = 0;
  const Graph graph = capture(captured, [&] {
    {
      const auto side = pool.acquire();
      used = side.id();
      side.wait_stream(captured);
      side.launch_host_func([&] { ++runs_of_graph; });
      captured.wait_stream(side);
    }
    on_thread([&] {
      const auto other = pool.acquire();
      EXPECT_NE(other.id(), used);
      EXPECT_FALSE(other.is_capturing());
      EXPECT_RUNS(other);
      EXPECT_ERROR(pool_exhausted, pool.acquire());
      EXPECT_EQ(pool.leased(), 1U);
    });
    const auto other = pool.acquire_for(patience);
    // the thread that captures gets it, because the pool must not grow
    const auto side = pool.acquire();
    again = side.id();
    side.wait_stream(captured);
    side.launch_host_func([&] { ++runs_of_graph; });
    captured.wait_stream(side);
  });
  EXPECT_EQ(again, used);
  graph.launch(captured);
  captured.synchronize();
  EXPECT_EQ(runs_of_graph, 2);
  repeat(2, [&] { EXPECT_RUNS(pool.acquire()); });
}

TEST_F(StreamPools, AThreadThatAsksDoesNotHideACapturedStreamFromTheCapturingThread) {
  StreamPool pool{device(), {.size = 1, .max = 1}};
  const Stream captured;
  std::atomic_bool is_over{false};
  drop(capture(captured, [&] {
    pool.acquire().wait_stream(captured);
    std::thread other{[&] {
      while (!is_over) EXPECT_ERROR(pool_exhausted, pool.acquire());
    }};
    repeat(2000, [&] { EXPECT_NO_ERROR(drop(pool.acquire())); });
    is_over = true;
    other.join();
    captured.wait_stream(pool.acquire());
  }));
}

TEST_F(StreamPools, AMovedFromPoolThrows) {
  StreamPool pool{device(), {.size = 1}};
  StreamPool moved{std::move(pool)};
  EXPECT_ERROR(invalid_handle, pool.acquire());  // NOLINT
  EXPECT_ERROR(invalid_handle, pool.size());     // NOLINT
  EXPECT_RUNS(moved.acquire());
}

}  // namespace conformance::stream_pool_cases
