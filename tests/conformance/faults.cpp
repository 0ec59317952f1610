// SPDX-License-Identifier: Apache-2.0
// Each allocation fails once, or no thread can be started. A call must either succeed or enqueue
// nothing, and every stream must continue.

#include "support.hpp"

namespace conformance::faults_cases {

class Faults : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    SKIP_IF(!IsSkipped() && !streams_are_threads(), "the runtime's own allocations would fail too");
  }
};

/// Runs `f` with the first allocation failing, then with the second, and so on until `f` makes
/// fewer allocations.
template <class F>
void with_each_fault(F f) {
  for (long number = 1; number < 10'000; ++number) {
    SCOPED_TRACE("allocation " + std::to_string(number));
    if (!f(number) || testing::Test::HasFailure()) return;
  }
  FAIL() << "the number of allocations has no end";
}

/// Runs `f`. Returns false if it is out of memory; no other failure is allowed.
template <class F>
[[nodiscard]] bool succeeds(F f) {
  try {
    f();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// Enqueues functions that count themselves, and checks that they run in the order in which they
/// were enqueued.
struct Counted {
  std::atomic_int enqueued{0};
  std::atomic_int ran{0};
  std::atomic_bool in_order{true};

  void launch(StreamRef stream) {
    const int place = enqueued;
    if (succeeds([&] {
          stream.launch_host_func([this, place] {
            if (ran++ != place) in_order = false;
          });
        }))
      ++enqueued;
  }
};

TEST_F(Faults, AStreamThatWasRefusedWorkRunsLaterWork) {
  with_each_fault([&](long number) {
    const Stream stream;
    Counted counted;
    bool happened = false;
    {
      const AllocationFault fault{number};
      repeat(200, [&] { counted.launch(stream); });
      happened = fault.happened();
    }
    EXPECT_GE(counted.enqueued, 199);
    counted.launch(stream);
    EXPECT_COMPLETES(stream);
    EXPECT_EQ(counted.ran, counted.enqueued);
    EXPECT_TRUE(counted.in_order);
    return happened;
  });
}

TEST_F(Faults, MakingAndDestroyingStreams) {
  with_each_fault([&](long number) {
    auto ran = shared_count();
    int launched = 0;
    bool happened = false;
    {
      const AllocationFault fault{number};
      for (int i : range(40))
        drop(succeeds([&] {
          const Stream stream{{.blocking = i % 2 == 0}};
          stream.launch_host_func([ran] { ++*ran; });
          ++launched;
        }));
      happened = fault.happened();
    }
    EXPECT_GE(launched, 39);
    device().synchronize();
    EXPECT_EQ(*ran, launched);
    return happened;
  });
}

TEST_F(Faults, RecordingAndWaiting) {
  with_each_fault([&](long number) {
    const Stream first, second, blocking{{.blocking = true}};
    std::atomic_int value{0}, wrong{0};
    bool happened = false;
    {
      const AllocationFault fault{number};
      for (int i : range(40))
        drop(succeeds([&] {
          first.launch_host_func([&value, i] { value = i + 1; });
          Event event;
          first.record_event(event);
          TimedEvent timed;
          first.record_event(timed);
          second.wait_event(event);
          second.wait_event(timed);
          second.launch_host_func([&value, &wrong, i] { wrong += value >= i + 1 ? 0 : 1; });
          blocking.wait_stream(second);
          enqueue_nothing(blocking);
          default_stream().wait_stream(blocking);
        }));
      happened = fault.happened();
    }
    device().synchronize();
    EXPECT_EQ(wrong, 0);
    const StreamRef null = default_stream();
    for (const StreamRef stream : {StreamRef{first}, StreamRef{second}, StreamRef{blocking}, null})
      EXPECT_RUNS(stream);
    return happened;
  });
}

TEST_F(Faults, DeviceMemoryAndCopies) {
  PinnedBytes result{64};
  const auto used = [&] {
    device().synchronize();
    {
      const DeviceBytes any{4096, default_stream()};
    }  // its allocation frees blocks whose free could not be enqueued
    device().synchronize();
    return device().memory_info().total - device().memory_info().free;
  };
  const size_t before = used();
  with_each_fault([&](long number) {
    const Stream stream;
    std::ranges::fill(result, 0);
    std::array<bool, 64> copied{};
    bool happened = false;
    {
      const AllocationFault fault{number};
      for (size_t i : range(result.size()))
        copied[i] = succeeds([&] {
          DeviceBytes buffer{4096, stream};
          fill(stream, buffer, static_cast<unsigned char>(i + 1));
          copy_bytes(stream, &result[i], buffer.data() + 4095, 1);
        });
      happened = fault.happened();
    }
    EXPECT_RUNS(stream);
    stream.synchronize();
    for (size_t i : range(result.size())) EXPECT_EQ(result[i], copied[i] ? i + 1 : 0) << i;
    EXPECT_EQ(used(), before);
    return happened;
  });
}

TEST_F(Faults, PerThreadDefaultStreams) {
  with_each_fault([&](long number) {
    bool happened = false;
    auto ran = shared_count();
    std::atomic_int launched{0};
    on_thread([&, here = device()] {
      const AllocationFault fault{number};
      repeat(3, [&] {
        drop(succeeds([&] {
          StreamRef::per_thread_default(here).launch_host_func([ran] { ++*ran; });
          ++launched;
        }));
      });
      happened = fault.happened();
    });
    device().synchronize();
    EXPECT_EQ(*ran, launched);
    EXPECT_GE(launched, 2);
    return happened;
  });
}

TEST_F(Faults, AWaitForADeviceLooksForCapturesWithoutMemory) {
  const Stream stream;
  drop(capture(stream, [] {}));
  bool is_done = false;
  {
    const AllocationFault fault{1};
    is_done = succeeds([&] { device().synchronize(); });
  }
  EXPECT_TRUE(is_done);
}

TEST_F(Faults, WithoutNewThreadsEveryStreamStillRuns) {
  Streams streams(40);
  std::atomic_int ran{0};
  const ThreadFault fault;
  for (const Stream& stream : streams)
    repeat(10, [&] { stream.launch_host_func([&ran] { ++ran; }); });
  for (const Stream& stream : streams) EXPECT_COMPLETES(stream);
  EXPECT_EQ(ran, 400);
}

TEST_F(Faults, BlockedStreamsGoOnOnceThreadsCanBeStartedAgain) {
  constexpr int count = 40;
  Streams streams(count);
  // opens only when all functions run at the same time
  auto latch = std::make_shared<std::latch>(count);
  {
    const ThreadFault fault;
    for (const Stream& stream : streams)
      stream.launch_host_func([latch] { latch->arrive_and_wait(); });
    std::this_thread::sleep_for(20ms);
  }
  for (const Stream& stream : streams) EXPECT_COMPLETES(stream);
}

TEST_F(Faults, OverlapWithoutAThreadIsOutOfMemoryAndWorksLater) {
  const Ints in(100, 7);
  Ints out(100);
  size_t chunks = 0;
  // a call between ranges needs no thread, but a report of the progress does
  const auto run = [&] {
    const OverlapOptions options{
        .chunk = 50, .progress = [&](const OverlapProgress& now) { chunks = now.chunks; }};
    overlap(in, out, options, copy_chunk);
  };
  {
    const ThreadFault fault;
    EXPECT_EQ(code_of(run), errc::out_of_memory);
    EXPECT_EQ(out, Ints(100));
  }
  run();
  EXPECT_EQ(out, in);
}

// The first use of the library, in a process of its own.
class FirstUse : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_IF(Device::count() == 0, "no device: " << Device::why_no_device());
    SKIP_IF(!streams_are_threads(), "the runtime's own allocations would fail too");
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

constexpr int right = 0, wrong = 1, no_fault = 2;

int use_streams() {
  std::atomic_int ran{0};
  const Stream stream;
  const StreamRef null = default_stream();
  repeat(100, [&] {
    stream.launch_host_func([&ran] { ++ran; });
    null.launch_host_func([&ran] { ++ran; });
  });
  stream.synchronize();
  null.synchronize();
  return ran == 200 ? right : wrong;
}

[[noreturn]] void use_with_threads(long spared) {
  int refused = 0;
  {
    const ThreadFault fault{spared};
    repeat(3, [&] {
      const auto code = code_of([] { enqueue_nothing(Stream{}); });
      refused += code == errc::out_of_memory ? 1 : 0;
    });
  }
  std::_Exit(refused == (spared < 2 ? 3 : 0) ? use_streams() : wrong);
}

/// The library needs two threads to start with. Each attempt finds one.
[[noreturn]] void use_with_one_thread_at_a_time() {
  const auto attempt = [] {
    const ThreadFault fault{1};
    return succeeds([] {
      const Stream stream;
      enqueue_nothing(stream);
    });
  };
  const bool first = attempt();
  const bool second = attempt();
  std::_Exit(!first && second ? use_streams() : wrong);
}

/// Each stream of a ring waits for numbers that the stream before it writes. The last one to begin
/// is the least urgent.
[[noreturn]] void exchange_values_with_threads(long spared) {
  if (!Device::current().has_stream_memory_operations()) std::_Exit(right);
  constexpr uint32_t rounds = 20;
  PinnedBuffer<uint32_t> numbers{4U};
  std::ranges::fill(numbers, 0U);
  const ThreadFault fault{spared};
  const PriorityRange all = Device::current().priority_range();
  Streams ring(3);
  ring.emplace_back(StreamOptions{.priority = all.greatest});
  const Stream begins{{.priority = all.least}};
  for (uint32_t round = 1; round <= rounds; ++round)
    for (size_t i : range(ring.size())) {
      ring[i].wait_value(&numbers[i], round);
      ring[i].write_value(&numbers[(i + 1) % ring.size()], i + 1 < ring.size() ? round : round + 1);
    }
  begins.write_value(numbers.data(), 1);
  for (const Stream& stream : ring)
    if (!stream.synchronize_for(patience)) std::_Exit(wrong);
  std::_Exit(numbers[0] == rounds + 1 ? right : wrong);
}

/// Uses several streams whose functions block, so that each stream needs a thread of its own.
[[noreturn]] void use_with_fault(long number) {
  constexpr size_t count = 6;
  std::array<std::optional<Stream>, count> streams;
  std::atomic_int ran{0};
  int launched = 0;
  std::latch latch{1};
  bool happened = false;
  {
    const AllocationFault fault{number};
    for (std::optional<Stream>& stream : streams)
      launched += succeeds([&] {
        stream.emplace();
        stream->launch_host_func([&] {
          latch.wait();
          ++ran;
        });
      });
    launched += succeeds([&] { default_stream().launch_host_func([&ran] { ++ran; }); });
    happened = fault.happened();
  }
  latch.count_down();
  Device::current().synchronize();
  const int end = ran == launched ? use_streams() : wrong;
  std::_Exit(end == right && !happened ? no_fault : end);
}

using FirstUseDeathTest = FirstUse;

TEST_F(FirstUseDeathTest, WithoutThreadsIsOutOfMemory) {
  EXPECT_EXIT(use_with_threads(0), testing::ExitedWithCode(right), "");
  EXPECT_EXIT(use_with_threads(1), testing::ExitedWithCode(right), "");
  EXPECT_EXIT(use_with_threads(2), testing::ExitedWithCode(right), "");
  EXPECT_EXIT(use_with_one_thread_at_a_time(), testing::ExitedWithCode(right), "");
}

TEST_F(FirstUseDeathTest, StreamsThatWaitForNumbersShareTheThreadsThatThereAre) {
  EXPECT_EXIT(exchange_values_with_threads(2), testing::ExitedWithCode(right), "");
  EXPECT_EXIT(exchange_values_with_threads(3), testing::ExitedWithCode(right), "");
}

TEST_F(FirstUseDeathTest, WithEachAllocationFailing) {
  int end = right;
  const auto note_end = [&](int status) {
    end = WIFEXITED(status) ? WEXITSTATUS(status) : wrong;
    return end == right || end == no_fault;
  };
  for (long number = 1; number < 200 && end == right; ++number) {
    SCOPED_TRACE("allocation " + std::to_string(number));
    EXPECT_EXIT(use_with_fault(number), note_end, "");
  }
  EXPECT_EQ(end, no_fault);
}

// The first staged copy starts the staging workers, so this needs a process of its own too.
class FirstStagedCopyDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_IF(Device::count() == 0, "no device: " << Device::why_no_device());
    SKIP_IF(Device::current().can_use_host_page_tables(),
            "copies of pageable memory are not staged here");
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

/// At the first copy only `spared` threads can be started; at later copies every thread can.
[[noreturn]] void stage_with_threads(long spared, std::error_code expected) {
  constexpr size_t size = mib;
  const Stream stream;
  DeviceBytes there{size, stream};
  const auto source = pattern(size, 4);
  Bytes back(size);
  stream.synchronize();
  std::error_code found;
  {
    const ThreadFault fault{spared};
    found = code_of([&] { return copy(stream, there, source); });
  }
  copy(stream, there, source);
  copy(stream, back, std::as_const(there));
  stream.synchronize();
  std::_Exit(found == expected && back == source ? right : wrong);
}

TEST_F(FirstStagedCopyDeathTest, WithoutThreadsIsOutOfMemoryAndWorksLater) {
  EXPECT_EXIT(stage_with_threads(0, make_error_code(errc::out_of_memory)),
              testing::ExitedWithCode(right), "");
}

}  // namespace conformance::faults_cases
