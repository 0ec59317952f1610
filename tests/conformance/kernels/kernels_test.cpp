// SPDX-License-Identifier: Apache-2.0
/// User kernels on runnel's streams, launched through `native()`: their order with copies, events
/// and other streams.
#include "kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

using namespace runnel;
using namespace std::chrono_literals;
using kernels::launch_busy;
using kernels::launch_double_and_add;
using kernels::launch_meet;
using Ints = std::vector<int>;
using DeviceInts = DeviceBuffer<int>;

constexpr std::size_t count = 100'003;

class Kernels : public testing::Test {
 protected:
  /// CUDA may wait for the kernels that run when it loads another one, by default at its first
  /// launch. Here some kernels wait for the host.
  static void SetUpTestSuite() { setenv("CUDA_MODULE_LOADING", "EAGER", 0); }

  void SetUp() override {
    if (Device::count() == 0) GTEST_SKIP() << Device::why_no_device();
  }
};

bool all_are(const Ints& numbers, int value) {
  return std::ranges::all_of(numbers, [&](int n) { return n == value; });
}

/// A kernel that runs until the host lets it end.
class Gate {
 public:
  explicit Gate(StreamRef stream) {
    std::ranges::fill(flags_, 0);
    launch_meet(stream, &flags_[1], &flags_[0], &flags_[2], 30s);
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() { std::atomic_ref{flags_[0]}.store(1); }
  /// False if the kernel did not wait for `open()` any longer. Requires: the kernel has run.
  bool was_opened() const { return flags_[2] == 1; }

 private:
  PinnedBuffer<int> flags_{3};
};

TEST_F(Kernels, KernelsRunInTheOrderOfTheirStream) {
  const Stream stream;
  DeviceInts there(count, stream);
  Ints numbers(count, 1);
  copy(stream, there, numbers);
  for (int i = 0; i < 5; ++i) launch_double_and_add(stream, there.data(), count);
  copy(stream, numbers, there);
  stream.synchronize();
  EXPECT_TRUE(all_are(numbers, 63));
}

TEST_F(Kernels, WaitStreamAndEventsOrderKernels) {
  const Stream up, run, down;
  DeviceInts there(count, up);
  Ints numbers(count, 3);
  DeviceInts flag(1, run);
  for (int round = 0; round < 20; ++round) {
    copy(up, there, numbers);
    run.wait_stream(up);
    launch_busy(run, 200us, flag.data());
    launch_double_and_add(run, there.data(), count);
    const Event done = run.record_event();
    down.wait_event(done);
    copy(down, numbers, there);
    up.wait_stream(down);  // the next round reads the result of this round
  }
  up.synchronize();
  int expected = 3;
  for (int round = 0; round < 20; ++round)
    expected = static_cast<int>(2U * static_cast<unsigned>(expected) + 1U);
  EXPECT_TRUE(all_are(numbers, expected));
}

TEST_F(Kernels, QueryIsFalseUntilAKernelHasRun) {
  if (!Device::current().can_map_host_memory())
    GTEST_SKIP() << "the device does not map host memory";
  const Stream stream;
  DeviceInts there(1, stream);
  fill(stream, there, 0);
  Gate gate{stream};
  launch_double_and_add(stream, there.data(), 1);
  EXPECT_FALSE(stream.query());
  Ints seen(1);
  copy(stream, seen, there);
  EXPECT_FALSE(stream.synchronize_for(1ms));
  gate.open();
  EXPECT_TRUE(stream.synchronize_for(30s));
  EXPECT_TRUE(gate.was_opened());
  EXPECT_EQ(seen[0], 1);
}

/// Each of the two kernels waits for the other one, which works only if both run at the same time.
TEST_F(Kernels, KernelsOfTwoStreamsOverlap) {
  const Stream a, b;
  DeviceInts flags(4, a);
  fill(a, flags, 0);
  b.wait_stream(a);
  launch_meet(a, flags.data(), flags.data() + 1, flags.data() + 2, 30s);
  launch_meet(b, flags.data() + 1, flags.data(), flags.data() + 3, 30s);
  a.wait_stream(b);
  Ints seen(4);
  copy(a, seen, flags);
  a.synchronize();
  EXPECT_EQ(seen, (Ints{1, 1, 1, 1}));
}

TEST_F(Kernels, EventsTimeAKernel) {
  const Stream stream;
  DeviceInts flag(1, stream);
  const TimedEvent start{stream};
  launch_busy(stream, 20ms, flag.data());
  const TimedEvent stop{stream};
  stream.synchronize();
  EXPECT_GE(stop - start, 19ms);  // the device's clock is coarse
}

TEST_F(Kernels, AKernelReadsAndWritesMappedPinnedMemory) {
  if (!Device::current().can_map_host_memory())
    GTEST_SKIP() << "the device does not map host memory";
  const Stream stream;
  PinnedBuffer<int> numbers(count);
  std::ranges::fill(numbers, 7);
  launch_double_and_add(stream, numbers.data(), count);
  stream.synchronize();
  EXPECT_TRUE(std::ranges::all_of(numbers, [](int n) { return n == 15; }));
}

TEST_F(Kernels, AKernelBlocksNoCallerOfALaterPageableCopy) {
  if (!Device::current().can_map_host_memory())
    GTEST_SKIP() << "the device does not map host memory";
  const Stream stream;
  DeviceInts there(count * 100, stream);
  Ints numbers(count * 100, 5);
  Gate gate{stream};
  copy(stream, there, numbers);
  EXPECT_FALSE(stream.query());  // the kernel was still running when copy() returned
  launch_double_and_add(stream, there.data(), there.size());
  copy(stream, numbers, there);
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(gate.was_opened());
  EXPECT_TRUE(all_are(numbers, 11));
}

/// Which multiprocessors ran a kernel of the stream.
Ints multiprocessors_of(StreamRef stream) {
  Ints noted(static_cast<std::size_t>(stream.device().multiprocessor_count()));
  DeviceInts there(noted.size(), stream);
  fill(stream, there, 0);
  kernels::launch_note_multiprocessors(stream, there.data());
  copy(stream, noted, there);
  stream.synchronize();
  return noted;
}

TEST_F(Kernels, ALaunchThatFailsThrowsOnce) {
  const Stream stream;
  kernels::launch_too_large(stream);
  if (std::string_view{RUNNEL_BACKEND} != "host") {
    try {
      check_launch("too_large");
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), errc::invalid_argument);
      EXPECT_NE(error.native_code(), 0);
      EXPECT_NE(std::string_view{error.what()}.find("could not launch a kernel: too_large: "),
                std::string_view::npos)
          << error.what();
    }
  }
  EXPECT_NO_THROW(check_launch("too_large"));
}

TEST_F(Kernels, AKernelOfAPartRunsOnItsMultiprocessorsOnly) {
  const Device device{0};
  const Stream whole;
  const int all = device.multiprocessor_count();
  const auto ran_on = [](const Ints& noted) {
    return static_cast<int>(std::ranges::count(noted, 1));
  };
  EXPECT_GE(ran_on(multiprocessors_of(whole)), 1);
  if (!device.has_partitions())
    GTEST_SKIP() << "streams of this device cannot have a part of its multiprocessors";
  const auto [few, more, rest] = partition(device, 16, 24);
  Ints uses(static_cast<std::size_t>(all));
  for (const Partition part : {few, more, rest}) {
    const Stream stream{device, {.priority = Priority::high, .partition = part}};
    EXPECT_EQ(stream.multiprocessors(), part.multiprocessors());
    const Ints noted = multiprocessors_of(stream);
    EXPECT_EQ(ran_on(noted), part.multiprocessors());
    for (std::size_t i = 0; i < uses.size(); ++i) uses[i] += noted[i];
  }
  EXPECT_EQ(*std::ranges::max_element(uses), 1) << "two parts share a multiprocessor";
  EXPECT_EQ(ran_on(multiprocessors_of(whole)), all);
}

TEST_F(Kernels, AKernelWaitsForAValueAndOneFollowsIt) {
  const Device device{0};
  if (!device.has_stream_memory_operations())
    GTEST_SKIP() << "the device has no stream memory operations";
  const Stream stream;
  PinnedBuffer<std::uint32_t> value(2);
  std::atomic_ref<std::uint32_t> begin{value[0]}, end{value[1]};
  begin = end = 0;
  PinnedBuffer<int> result(1);
  DeviceInts there(1, stream);
  fill(stream, there, 1);
  stream.wait_value(value.data(), 1);
  launch_double_and_add(stream, there.data(), 1);
  copy(stream, result, there);
  stream.write_value(value.data() + 1, 1);
  EXPECT_FALSE(stream.query());
  EXPECT_EQ(end.load(), 0U);
  begin.store(1, std::memory_order_release);
  while (end.load(std::memory_order_acquire) == 0) static_cast<void>(stream.query());
  EXPECT_EQ(result[0], 3);
}

}  // namespace
