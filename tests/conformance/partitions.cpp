// SPDX-License-Identifier: Apache-2.0
// Streams with a part of a device.
#include "support.hpp"

namespace conformance::partitions_cases {

class Partitions : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    SKIP_IF(!device().has_partitions(),
            "streams of this device cannot have a part of its multiprocessors");
    all = device().multiprocessor_count();
  }
  int all = 0;
};
using NoPartitions = Conformance;

TEST_F(NoPartitions, ADeviceWithoutPartitionsRefuses) {
  SKIP_IF(device().has_partitions(), "the device can be divided");
  EXPECT_ERROR(not_supported, partition(device(), 1));
}

TEST_F(NoPartitions, AStreamWithoutAPartHasAllMultiprocessors) {
  Stream stream;
  EXPECT_EQ(stream.multiprocessors(), device().multiprocessor_count());
  EXPECT_EQ(default_stream().multiprocessors(), device().multiprocessor_count());
  EXPECT_FALSE(Partition{});
  Stream moved{std::move(stream)};
  EXPECT_ERROR(invalid_handle, stream.multiprocessors());
}

TEST_F(Partitions, PartsHaveWhatWasAskedForAndTheRest) {
  const auto [one, two, rest] = partition(device(), 1, all / 4);
  EXPECT_GE(one.multiprocessors(), 1);
  EXPECT_GE(two.multiprocessors(), all / 4);
  EXPECT_GE(rest.multiprocessors(), 1);
  EXPECT_LE(one.multiprocessors() + two.multiprocessors() + rest.multiprocessors(), all);
  for (const Partition part : {one, two, rest}) EXPECT_EQ(part.device(), device());
  EXPECT_NE(one, two);
  EXPECT_EQ(partition(device(), 1, all / 4)[1], two);  // the same call again
}

TEST_F(Partitions, AWrappedStreamHasNoPartOfAStreamThatEnded) {
  const native::stream handle = Stream{}.release();
  {
    const Stream of_part{{.partition = partition(device(), all / 4)[0]}};
  }
  const Stream wrapped = take(handle);
  EXPECT_EQ(wrapped.multiprocessors(), all);
}

TEST_F(Partitions, StreamsOfPartsWork) {
  const auto [part, rest] = partition(device(), all / 4);
  const Stream small{{.name = "small", .partition = part}}, large{device(), {.partition = rest}},
      whole;
  EXPECT_EQ(small.multiprocessors(), part.multiprocessors());
  EXPECT_EQ(large.multiprocessors(), rest.multiprocessors());
  EXPECT_EQ(whole.multiprocessors(), all);
  EXPECT_STREQ(small.name(), "small");
  constexpr size_t count = 1000;
  const PinnedInts in{count};
  Ints out(count), expected(count, 6);
  DeviceInts memory{count, small};
  fill(small, memory, 6);
  large.wait_stream(small);
  copy(large, out, memory);
  bool ran = false;
  large.launch_host_func([&] { ran = true; });
  Event event;
  large.record_event(event);
  whole.wait_event(event);
  EXPECT_COMPLETES(whole);
  EXPECT_TRUE(ran);
  EXPECT_EQ(out, expected);
  EXPECT_COMPLETES(small);
  EXPECT_EQ(large.device(), device());
}

TEST_F(Partitions, AStreamOfAPartCanBeCapturedAndDestroyed) {
  const auto [part, rest] = partition(device(), all / 4);
  int ran = 0;
  {
    const Stream stream{{.partition = part}};
    const Graph graph = capture(stream, [&] { stream.launch_host_func([&] { ++ran; }); });
    graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(stream.query(), true);
  }
  EXPECT_EQ(ran, 1);
  const Stream whole;  // perhaps with the slot or the handle of the one before
  EXPECT_EQ(whole.multiprocessors(), all);
}

TEST_F(Partitions, WrongNumbersAreRefused) {
  EXPECT_ERROR(invalid_argument, partition(device(), 0));
  EXPECT_ERROR(invalid_argument, partition(device(), -1));
  EXPECT_ERROR(invalid_argument, partition(device(), all));
  EXPECT_ERROR(invalid_argument, partition(device(), all / 2, all / 2 + 1));
  EXPECT_ERROR(invalid_argument, partition(device(), std::numeric_limits<int>::max()));
  EXPECT_ERROR(invalid_device, partition(Device{99}, 1));
  Partition one;
  EXPECT_ERROR(invalid_argument, partition(device(), std::array{1}, std::span{&one, 1}));
  if (Device::count() < 2) return;
  const auto parts = partition(Device{1}, 1);
  EXPECT_ERROR(invalid_argument, Stream{Device{0}, {.partition = parts[0]}});
}

}  // namespace conformance::partitions_cases
