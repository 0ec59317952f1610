// SPDX-License-Identifier: Apache-2.0
// Later allocations can use device memory whose free is enqueued but has not run. The sizes are
// parts of the device's memory, which must be small, so the suite runs these cases once more with
// RUNNEL_HOST_MEMORY.

#include "support.hpp"

namespace conformance::memory_reuse_cases {
using Buffer = DeviceBytes;

class MemoryReuse : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    total_ = device().memory_info().total;
    SKIP_IF(!device().has_memory_pools(), "without memory pools, a free waits for the device");
    SKIP_IF(total_ > gib, "the device has too much memory: see RUNNEL_HOST_MEMORY");
  }
  /// `share` percent of the device's memory, in bytes.
  size_t percent(size_t share) const { return total_ / 100 * share; }

  size_t total_ = 0;
};

TEST_F(MemoryReuse, ALoopOfBuffersOnOneStreamNeverRunsOut) {
  constexpr int rounds = 200;
  const Stream stream;
  PinnedBytes last{rounds};
  for (int i : range(rounds)) {
    Buffer buffer{percent(10), stream};
    fill(stream, buffer, static_cast<unsigned char>(i));
    copy_bytes(stream, &nth(last, i), buffer.data() + buffer.size() - 1, 1);
  }
  stream.synchronize();
  for (int i : range(rounds)) ASSERT_EQ(nth(last, i), static_cast<unsigned char>(i));
}

TEST_F(MemoryReuse, APendingFreeIsReusedOnTheSameStream) {
  const Stream stream;
  PinnedBytes first{1}, second{1};
  Gate gate{stream};
  for (PinnedBytes* const result : {&first, &second}) {
    Buffer buffer{percent(60), stream};
    fill(stream, buffer, static_cast<unsigned char>(result == &first ? 1 : 2));
    copy_bytes(stream, result->data(), buffer.data(), 1);
  }
  EXPECT_CLOSED(gate);
  gate.open_and_wait(stream);
  EXPECT_EQ(first[0], 1);
  EXPECT_EQ(second[0], 2);
}

TEST_F(MemoryReuse, AnotherStreamWaitsForThePendingFreeThatItReuses) {
  const Stream owner, other, unrelated;
  PinnedBytes result{2};
  Gate gate;
  {
    Buffer buffer{percent(60), owner};
    gate.close_on(owner);
    fill(owner, buffer, 1);
    copy_bytes(owner, &result[0], buffer.data(), 1);
  }
  Buffer small{percent(10), unrelated};  // fits beside the buffer, so needs no pending free
  Buffer next{percent(60), other};       // does not block the caller
  fill(other, next, 2);
  copy_bytes(other, &result[1], next.data(), 1);
  EXPECT_PENDING(other);
  fill(unrelated, small, 3);
  EXPECT_COMPLETES(unrelated);
  EXPECT_CLOSED(gate);
  gate.open_and_wait(other);
  EXPECT_EQ(result[0], 1);
  EXPECT_EQ(result[1], 2);
}

/// A host function cannot record, and the service thread is held. A wait for the device would wait
/// for the gate.
TEST_F(MemoryReuse, WhatAHostFunctionDropsComesBackBesideALongCompletion) {
  const Stream stream, held, unrelated;
  std::optional buffer{Buffer{percent(60), stream}};
  std::latch is_held{1};
  const auto is_over = std::make_shared<std::latch>(1);
  held.on_complete([&is_held, is_over](const Outcome&) {
    is_held.count_down();
    is_over->wait();
  });
  is_held.wait();
  stream.launch_host_func([&] { buffer.reset(); });
  stream.synchronize();
  Gate gate{unrelated};
  buffer.emplace(percent(60), stream);
  EXPECT_CLOSED(gate);
  is_over->count_down();
  gate.open_and_wait(unrelated);
}

TEST_F(MemoryReuse, APendingFreeIsReusedOnlyOnce) {
  const Stream stream, other;
  Gate gate{stream};
  {
    const Buffer buffer{percent(60), stream};
  }
  const Buffer next{percent(60), stream};
  EXPECT_ERROR(out_of_memory, Buffer{percent(60), stream});
  EXPECT_ERROR(out_of_memory, Buffer{percent(60), other});
  EXPECT_RUNS(other) << "a refused allocation made the stream wait for a free";
  gate.open_and_wait(stream);
}

TEST_F(MemoryReuse, SeveralPendingFreesAreReusedTogether) {
  const Stream stream, other;
  Gate gate{stream};
  {
    const Buffer first{percent(30), stream}, second{percent(30), stream},
        third{percent(30), stream};
  }
  Buffer next{percent(80), other};
  fill_bytes(other, next.data(), 1, 1);
  EXPECT_BEHIND(gate, other);
}

TEST_F(MemoryReuse, TheRestOfAPendingFreeIsReusedOnlyOnce) {
  const Stream stream;
  Gate gate{stream};
  {
    const Buffer buffer{percent(60), stream};
  }
  const Buffer next{percent(60), stream};  // takes what is free, and a third of the buffer
  EXPECT_ERROR(out_of_memory, Buffer{percent(50), stream});
  const Buffer rest{percent(30), stream};
  gate.open_and_wait(stream);
}

TEST_F(MemoryReuse, AFreeByAnotherThreadIsAwaitedWithoutTheDevicesOtherWork) {
  const Stream stream, unrelated;
  repeat(20, [&] {
    const StreamRef own = thread_default();
    std::optional buffer{Buffer{percent(60), own}};
    fill_bytes(own, buffer->data(), 1, percent(5));
    on_thread([&] { buffer.reset(); });
    Gate gate{unrelated};
    const Buffer next{percent(60), stream};
    EXPECT_CLOSED(gate);
  });
}

/// Frees a buffer that another thread's default stream has used as `use` does, and calls `then`
/// while that thread lives.
template <class Use, class Then>
void beside_the_user(size_t bytes, Use use, Then then) {
  std::optional<Buffer> buffer;
  std::promise<void> used, over;
  std::thread user{[&] {
    const StreamRef own = thread_default();
    buffer.emplace(bytes, own);
    use(own, *buffer);
    used.set_value();
    over.get_future().wait();
  }};
  used.get_future().wait();
  buffer.reset();
  then();
  over.set_value();
  user.join();
}

TEST_F(MemoryReuse, AFreeThatOnlyAnotherThreadCouldReportDoesNotHoldAnAllocationForEver) {
  const Stream stream;
  const auto allocate = [&] { const Buffer next{percent(60), stream}; };
  const auto use = [&](StreamRef own, Buffer& buffer) {
    fill_bytes(own, buffer.data(), 1, percent(5));
  };
  beside_the_user(percent(60), use, [&] {
    // In a process that has captured streams, the allocation does not wait for the device, but is
    // refused.
    const auto code = code_of(allocate);
    EXPECT_TRUE(!code || code == errc::out_of_memory) << code.message();
  });
  EXPECT_FALSE(code_of(allocate));
}

TEST_F(MemoryReuse, AFreeThatOnlyAnotherThreadCouldReportWaitsForTheWorkOfThatThread) {
  const Stream stream;
  Gate gate;
  const auto use = [&](StreamRef own, Buffer&) { gate.close_on(own); };
  beside_the_user(percent(60), use, [&] {
    std::thread opener{[&] {
      std::this_thread::sleep_for(20ms);
      gate.open();
    }};
    // As above, the allocation may be refused.
    const auto code = code_of([&] { const Buffer next{percent(60), stream}; });
    EXPECT_TRUE(code || gate.is_open());
    opener.join();
  });
}

/// A buffer that two streams have used.
void use_on_two_streams(StreamRef owner, StreamRef other, size_t bytes) {
  Buffer buffer{bytes, owner};
  buffer.record_stream(other);
  other.wait_stream(owner);
  fill_bytes(other, buffer.data(), 1, 1);
}

TEST_F(MemoryReuse, ACompletionFunctionReusesWhatItHasDropped) {
  const Stream owner, other;
  std::promise<std::error_code> told;
  owner.on_complete([&](const Outcome&) {
    told.set_value(code_of([&] {
      repeat(3, [&] {
        use_on_two_streams(owner, other, percent(60));
        other.synchronize();
      });
    }));
  });
  EXPECT_FALSE(told.get_future().get());
}

TEST_F(MemoryReuse, ALongFunctionDoesNotStandBeforeFrees) {
  const Stream owner, other, third;
  std::promise<void> entered, leave;
  third.on_complete([&](const Outcome&) {
    entered.set_value();
    leave.get_future().wait();
  });
  entered.get_future().wait();
  repeat(3, [&] {
    use_on_two_streams(owner, other, percent(60));
    other.synchronize();
  });
  EXPECT_FALSE(code_of([&] { const Buffer next{percent(60), third}; }));
  leave.set_value();
  EXPECT_TRUE(quiesce_for(patience));
}

TEST_F(MemoryReuse, WhatNeverFitsIsRefusedWhileAnotherThreadFrees) {
  const Stream stream, owner, other;
  std::atomic_bool is_over{false}, has_begun{false};
  std::thread freeing{[&] {
    while (!is_over) {
      use_on_two_streams(owner, other, kib);
      other.launch_host_func([] { std::this_thread::sleep_for(1ms); });
      other.synchronize();
      has_begun = true;
    }
  }};
  while (!has_begun) std::this_thread::yield();
  const auto begin = Clock::now();
  EXPECT_ERROR(out_of_memory, Buffer{total_ + 1, stream});
  EXPECT_LT(Clock::now() - begin, 5s);
  is_over = true;
  freeing.join();
}

TEST_F(MemoryReuse, AnAllocationThatIsRefusedMidwayWaitsForThePendingFreeNextTime) {
  SKIP_IF(!streams_are_threads(), "the allocations of the runtime do not fail");
  int refused = 0;
  // The wait for the pending free needs memory if the queue is at the end of a block of tasks.
  for (int i : range(3 * 64)) {
    const Stream owner, other;
    Gate gate, ahead;
    gate.close_on(owner);
    ahead.close_on(other);
    {
      const Buffer buffer{percent(60), owner};
    }
    repeat(i / 3, [&] { enqueue_nothing(other); });
    std::optional<Buffer> next;
    try {
      const AllocationFault fault{1 + i % 3};
      next.emplace(percent(60), other);
    } catch (const std::bad_alloc&) {
      ++refused;
      next.emplace(percent(60), other);
    }
    ahead.open();
    EXPECT_FALSE(other.synchronize_for(1ms))
        << "after " << i / 3 << " tasks, allocation " << 1 + i % 3;
    gate.open_and_wait(other);
  }
  EXPECT_GT(refused, 0);
}

TEST_F(MemoryReuse, AllMemoryIsFreeAgainInTheEnd) {
  const Stream stream, other;
  device().synchronize();
  const size_t before = device().memory_info().free;
  {
    Gate gate{stream};
    for (int i : range(20)) {
      const Buffer buffer{percent(30), i % 3 == 0 ? other : stream};
      EXPECT_LE(device().memory_info().free, before);
    }
  }
  device().synchronize();
  EXPECT_EQ(device().memory_info().free, before);
}

TEST_F(MemoryReuse, ManyThreadsShareALittleMemory) {
  std::atomic_int wrong{0};
  on_threads(4, [&](int thread) {
    const Stream stream;
    PinnedBytes last{100};
    for (int i : range(100)) {
      Buffer buffer{percent(static_cast<size_t>(5 + (i * 7 + thread) % 20)), stream};
      fill_bytes(stream, buffer.data() + buffer.size() - 4096, static_cast<unsigned char>(i), 4096);
      copy_bytes(stream, &nth(last, i), buffer.data() + buffer.size() - 1, 1);
    }
    stream.synchronize();
    for (int i : range(100)) wrong += nth(last, i) == i ? 0 : 1;
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace conformance::memory_reuse_cases
