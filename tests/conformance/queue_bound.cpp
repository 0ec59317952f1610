// SPDX-License-Identifier: Apache-2.0
// A stream that is slower than its caller blocks the caller, so that its queue stays bounded.

#include "support.hpp"

namespace conformance::queue_bound_cases {

/// Far above every backend's bound, and far below what the cases enqueue.
constexpr int max_waiting = 1 << 17;

class QueueBound : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    SKIP_IF(!IsSkipped() && !streams_are_threads(), "the queue is the runtime's own");
  }
};

void spin_a_little() {
  const auto end = Clock::now() + 3us;
  while (Clock::now() < end) {
  }
}

TEST_F(QueueBound, AFastCallerWaitsForASlowStream) {
  constexpr int functions = 400'000;
  const Stream stream;
  std::atomic_int done{0};
  int most = 0;
  const size_t before = heap_in_use();
  size_t heap = before;
  for (int i : range(functions)) {
    stream.launch_host_func([&done] {
      spin_a_little();
      done.fetch_add(1, std::memory_order_relaxed);
    });
    most = std::max(most, i + 1 - done.load(std::memory_order_relaxed));
    if (i % 10'000 == 0) heap = std::max(heap, heap_in_use());
  }
  stream.synchronize();
  EXPECT_EQ(done, functions);
  EXPECT_LT(most, max_waiting);
  EXPECT_LT(heap - before, 32 * mib);
}

TEST_F(QueueBound, OtherStreamsRunWhileACallerIsBlocked) {
  constexpr int functions = 100'000;
  const Stream full{{.blocking = true}};
  const Stream other{{.blocking = true}};
  std::atomic_int enqueued{0}, done{0};
  Gate gate{full};
  std::thread caller{[&] {
    repeat(functions, [&] {
      full.launch_host_func([&done] { ++done; });
      ++enqueued;
    });
  }};
  int seen = 0;
  const auto is_held = [&] {
    const int before = std::exchange(seen, enqueued.load());
    std::this_thread::sleep_for(20ms);
    return before > 0 && before == seen;
  };
  EXPECT_TRUE(eventually(is_held));
  EXPECT_LT(enqueued, functions);
  EXPECT_RUNS(other);
  EXPECT_PENDING(full);
  EXPECT_PENDING(default_stream());
  {
    const Stream created{{.blocking = true}};
  }
  gate.open();
  caller.join();
  full.synchronize();
  EXPECT_EQ(done, functions);
}

TEST_F(QueueBound, ManyCallersOfOneStreamAllFinish) {
  constexpr int each = 50'000;
  const Stream stream;
  std::atomic_int done{0};
  on_threads(4, [&](int) {
    repeat(each, [&] {
      stream.launch_host_func([&done] { done.fetch_add(1, std::memory_order_relaxed); });
    });
  });
  stream.synchronize();
  EXPECT_EQ(done, 4 * each);
}

TEST_F(QueueBound, AFastCallerOfGraphsWaitsForASlowStream) {
  constexpr int launches = 200'000;
  const Stream stream;
  std::atomic_int done{0};
  const Graph graph = capture(stream, [&] {
    stream.launch_host_func([&done] {
      spin_a_little();
      done.fetch_add(1, std::memory_order_relaxed);
    });
  });
  int most = 0;
  for (int i : range(launches)) {
    graph.launch(stream);
    most = std::max(most, i + 1 - done.load(std::memory_order_relaxed));
  }
  stream.synchronize();
  EXPECT_EQ(done, launches);
  EXPECT_LT(most, max_waiting);
}

/// Leaves no room in a stream, behind a gate.
class Filler {
 public:
  explicit Filler(StreamRef stream)
      : gate_{stream}, thread_{[this, stream] {
          while (enqueued_ < 4000) enqueue_nothing(stream), ++enqueued_;
        }} {
    for (int seen = -1; seen != enqueued_ && enqueued_ < 4000;) {
      seen = enqueued_;
      std::this_thread::sleep_for(30ms);
    }
  }
  ~Filler() {
    gate_.open();
    thread_.join();
  }

 private:
  Gate gate_;
  std::atomic_int enqueued_{0};
  std::thread thread_;
};

/// A stream without room for more, behind a gate. A host function of the stream has dropped memory
/// that the stream uses.
template <class Memory>
class FullStream {
 public:
  template <class Make>
  explicit FullStream(Make make) {
    auto dropped = std::make_shared<std::optional<Memory>>(make());
    (*dropped)->record_stream(stream_);
    Gate first{stream_};
    std::atomic_bool has_dropped{false};
    stream_.launch_host_func([&has_dropped, dropped = std::move(dropped)] {
      dropped->reset();
      has_dropped = true;
    });
    filler_.emplace(stream_);
    first.open();
    EXPECT_EVENTUALLY(has_dropped.load());
    std::this_thread::sleep_for(20ms);  // Then the filler has taken the room again.
  }
  ~FullStream() {
    filler_.reset();
    stream_.synchronize();
  }

 private:
  Stream stream_;
  std::optional<Filler> filler_;
};

using FullStreams = Conformance;

TEST_F(FullStreams, AnAllocationOfPinnedMemoryWaitsForNoRoom) {
  const FullStream<PinnedBytes> full{[] { return PinnedBytes{4096}; }};
  const PinnedBytes another{4096};
}

TEST_F(FullStreams, CompletionsOfOtherStreamsWaitForNoRoom) {
  const Stream other;
  const FullStream<DeviceBytes> full{[&] { return DeviceBytes{4096, other}; }};
  std::atomic_bool is_called{false};
  other.on_complete([&](const Outcome&) { is_called = true; });
  EXPECT_EVENTUALLY(is_called.load());
}

/// Memory that another thread drops is recorded on the default stream, which waits for room.
TEST_F(FullStreams, ACaptureOfABlockingStreamBeginsBesideAFullDefaultStream) {
  SKIP_IF(!streams_are_threads() && !says(device().name(), "Stand-in"),
          "it was seen on no device that a capture begins then");
  const Stream blocking{{.blocking = true}};
  const StreamRef standard = device().default_stream();
  std::optional<PinnedBytes> block{4096};
  block->record_stream(standard);
  std::optional<Filler> filler{standard};
  std::thread dropping{[&] { block.reset(); }};
  std::this_thread::sleep_for(20ms);
  drop(capture(blocking, [] {}));
  filler.reset();
  dropping.join();
}

}  // namespace conformance::queue_bound_cases
