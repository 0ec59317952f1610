// SPDX-License-Identifier: Apache-2.0

#include "support.hpp"

namespace conformance::multi_device_cases {
using MultiDevice = TwoDevices;

TEST_F(MultiDevice, StreamsAndBuffersCanBeMadeOnADeviceThatIsNotCurrent) {
  const DeviceGuard with{first};
  Stream stream{second};
  DeviceInts buffer{4, stream};
  EXPECT_EQ(stream.device(), second);
  EXPECT_EQ(buffer.device(), second);
  EXPECT_EQ(pointer_info(buffer.data()).device, second);
  EXPECT_CURRENT_DEVICE(first);
  EXPECT_RUNS(stream);
}

TEST_F(MultiDevice, SynchronizeAndQueryWhileAnotherDeviceIsCurrent) {
  Stream stream{second};
  Gate gate;
  const DeviceGuard with{first};
  gate.close_on(stream);
  EXPECT_PENDING(stream);
  EXPECT_HELD(gate, stream.synchronize());
  EXPECT_DONE(stream);
  EXPECT_EQ(stream.priority(), second.priority_range().clamp(0));
}

TEST_F(MultiDevice, AnEventCanBeRecordedOnStreamsOfDifferentDevices) {
  Stream a{first}, b{second};
  Event event;
  TimedEvent timed;
  for (const Stream* stream : {&a, &b, &a}) {
    stream->record_event(event);
    stream->record_event(timed);
    EXPECT_EQ(event.device(), stream->device());
    EXPECT_EQ(timed.device(), stream->device());
    event.synchronize();
    timed.synchronize();
  }
  Gate gate{b};
  event.record(b);
  EXPECT_PENDING(event);
  event.record(a);  // replaces the record on b
  EXPECT_COMPLETES(event);
  EXPECT_PENDING(b);
}

TEST_F(MultiDevice, AWaitIsUnaffectedWhenTheEventChangesDevice) {
  Stream a{first}, b{second}, waiter{first};
  Event event;
  expect_waits(b, waiter, [&] {
    event.record(b);
    waiter.wait_event(event);
    on_thread([&] {
      first.use();
      EXPECT_PENDING(event);
    });
    event.record(a);
  });
}

TEST_F(MultiDevice, NoCallOnAnotherDeviceChangesTheCurrentDevice) {
  const DeviceGuard with{first};
  Stream here{first};
  const auto same = [] { return Device::current() == first; };
  Stream stream{second};
  EXPECT_TRUE(same()) << "Stream";
  Event event{stream};
  TimedEvent start{stream}, stop{stream};
  EXPECT_TRUE(same()) << "record";
  DeviceInts there{4, stream};
  EXPECT_TRUE(same()) << "DeviceBuffer";
  Ints host(4);
  fill(stream, there, 1);
  fill_2d(stream, there.data(), 8, 2, 4, 2);
  copy(stream, host, there);
  copy(stream, there, host);
  copy_2d(stream, there.data(), 8, host.data(), 8, 4, 2);
  EXPECT_TRUE(same()) << "copies and fills";
  here.wait_stream(stream);
  stream.wait_stream(here);
  stream.wait_event(event);
  EXPECT_TRUE(same()) << "waits";
  enqueue_nothing(stream);
  drop(stream.query());
  drop(stream.priority());
  stream.synchronize();
  EXPECT_COMPLETES(stream);
  drop(event.query());
  event.synchronize();
  drop(stop - start);
  EXPECT_TRUE(same()) << "stream and event";
  drop(second.name());
  drop(second.memory_info());
  drop(second.priority_range());
  drop(second.can_access_peer(first));
  second.synchronize();
  EXPECT_TRUE(same()) << "device";
  drop(second.default_stream().query());
  drop(StreamRef::per_thread_default(second).query());
  drop(current_stream(second));
  EXPECT_TRUE(same()) << "default streams";
  {
    StreamPool pool{second, {.size = 1}};
    const auto one = pool.acquire();
    const auto two = pool.acquire();
  }
  EXPECT_TRUE(same()) << "pool";
  EXPECT_ERROR(invalid_argument, copy_bytes(stream, nullptr, host.data(), 4));
  EXPECT_ERROR(out_of_memory, DeviceBuffer<char>{SIZE_MAX / 2, stream});
  EXPECT_TRUE(same()) << "refusals";
  {
    const Stream dies = std::move(stream);
  }
  event = Event{};
  EXPECT_TRUE(same()) << "destructors";
}

TEST_F(MultiDevice, ABlockingCopyReachesMemoryOfTheOtherDevice) {
  SKIP_IF(!first.can_access_peer(second), "the devices cannot reach each other's memory");
  const Stream stream{first}, other{second};
  DeviceInts there{1000, other};
  fill(other, there, 3);
  other.synchronize();
  first.disable_peer_access(second);
  Ints values(1000);
  EXPECT_EQ(copy(stream, values, there, Pageable::block), CopyResult::blocked);
  stream.synchronize();
  EXPECT_EQ(values, Ints(1000, 3));
}

// The copies in the capture are the first ones that reach the other device's memory.
TEST_F(MultiDevice, ACaptureCopiesMemoryOfTheOtherDevice) {
  SKIP_IF(!first.can_access_peer(second), "the devices cannot reach each other's memory");
  constexpr size_t count = 1000;
  const Stream stream{first}, other{second};
  PinnedInts source(count), flat(count), pitched(count);
  count_from(source, 1);
  DeviceInts here{count, stream}, there{count, other};
  stream.synchronize();
  other.synchronize();
  first.disable_peer_access(second);
  const Graph graph = capture(stream, [&] {
    copy(stream, there, source);
    copy(stream, here, there);
    copy(stream, flat, here);
    copy_2d(stream, here.data(), 100, there.data() + 25, 100, 80, 10);
    copy(stream, pitched, here);
  });
  graph.launch(stream);
  stream.synchronize();
  EXPECT_SAME(flat, source);
  EXPECT_EQ(pitched[0], source[25]);
  EXPECT_EQ(pitched[244], source[269]);
  EXPECT_EQ(pitched[245], source[245]);
}

}  // namespace conformance::multi_device_cases
