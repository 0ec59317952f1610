// SPDX-License-Identifier: Apache-2.0
// Operations belong to streams, and those of different streams run in the order of their calls.

#include "cases.hpp"

namespace comm { namespace {

class Order : public Communicators {};

TEST_F(Order, AnOperationComesAfterWhatIsThereAndBeforeWhatComes) {
  DeviceInts values{100'000, stream};
  for (int round : range(20)) {
    fill(stream, values, rank + round);
    all.all_reduce(stream, values);
    Ints seen(values.size());
    copy(stream, seen, values);
    fill(stream, values, -1);
    stream.synchronize();
    EXPECT_EQ(seen, Ints(values.size(), size * (size - 1) / 2 + size * round));
  }
}

TEST_F(Order, TheCallReturnsWhileTheStreamIsHeldUp) {
  DeviceInts values{300'000, stream};
  fill(stream, values, 1);
  Gate gate{stream};
  repeat(3, [&] { all.all_reduce(stream, values); });
  EXPECT_PENDING(stream);
  meet();
  gate.open();
  EXPECT_EQ(on_host(values), Ints(values.size(), size * size * size));
}

/// Two communicators on two streams. On every second process one of the streams is late.
TEST_F(Order, CommunicatorsOfSkewedStreamsDoNotCross) {
  const Communicator other = make();
  const Stream second;
  constexpr int rounds = 250;
  DeviceInts a{8, stream}, b{8, second};
  int wrong = 0;
  for (int round : range(rounds)) {
    fill(stream, a, 1);
    fill(second, b, 1000);
    const auto late = [&](StreamRef s) {
      s.launch_host_func([] { std::this_thread::sleep_for(200us); });
    };
    late((rank + round) % 2 == 0 ? StreamRef{stream} : StreamRef{second});
    all.all_reduce(stream, a);
    other.all_reduce(second, b);
    Ints from_a(8), from_b(8);
    copy(stream, from_a, a);
    copy(second, from_b, b);
    stream.synchronize();
    second.synchronize();
    wrong += from_a != Ints(8, size) || from_b != Ints(8, 1000 * size);
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(Order, OneCommunicatorInSeveralStreams) {
  Streams streams(5);
  std::vector<DeviceInts> values;
  for (const Stream& each : streams) values.emplace_back(1000, each);
  for (int round : range(40))
    for (size_t i : range(streams.size())) {
      fill(streams[i], values[i], static_cast<int>(i));
      all.all_reduce(streams[i], values[i]);
      all.broadcast(streams[(i + 1) % 5], values[(i + 1) % 5], round % size);
    }
  for (const Stream& each : streams) EXPECT_TRUE(each.synchronize_for(patience));
}

TEST_F(Order, ABufferOfAnotherStreamMayEndWithAnOperationOnIt) {
  const Stream owner;
  DeviceInts sums{1000, stream}, received{1000, stream};
  Gate gate{stream};
  {
    DeviceInts values{1000, owner}, sent{1000, owner};
    fill(owner, values, 1);
    fill(owner, sent, rank);
    stream.wait_stream(owner);
    all.all_reduce(stream, values, sums);
    all.group(stream, [&](Communicator::Group& group) {
      if (size == 1) return;
      group.send(sent, (rank + 1) % size);
      group.receive(received, (rank + size - 1) % size);
    });
  }
  std::vector<DeviceInts> others;
  for (int i = 0; i < 10; ++i) fill(owner, others.emplace_back(1000, owner), -1);
  owner.synchronize();
  meet();
  gate.open();
  EXPECT_EQ(on_host(sums), Ints(1000, size));
  if (size > 1) {
    EXPECT_EQ(on_host(received), Ints(1000, (rank + size - 1) % size));
  }
}

TEST_F(Order, AStreamMayEndWithAnOperationInIt) {
  for (int round : range(50)) {
    DeviceInts values{1000, stream};
    {
      const Stream short_lived;
      short_lived.wait_stream(stream);
      fill(short_lived, values, round);
      all.all_reduce(short_lived, values);
      stream.wait_stream(short_lived);
    }
    EXPECT_EQ(on_host(values), Ints(1000, size * round));
  }
}

TEST_F(Order, ACommunicatorMayEndWithOperationsUnderWay) {
  DeviceInts values{1000, stream};
  fill(stream, values, 1);
  std::optional<Communicator> brief{make()};  // which may wait for all work of the device
  Gate gate{stream};
  brief->all_reduce(stream, values);
  brief.reset();
  gate.open();
  EXPECT_EQ(on_host(values), Ints(1000, size));
}

TEST_F(Order, DefaultStreamsTakeOperationsToo) {
  const StreamRef defaults[]{Device::current().default_stream(),
                             StreamRef::per_thread_default(Device::current())};
  for (const StreamRef each : defaults) {
    DeviceInts values{100, each};
    fill(each, values, 1);
    all.all_reduce(each, values);
    EXPECT_EQ(read_back(each, values), Ints(100, size));
  }
}

TEST_F(Order, PartsOfTheProcessesCommunicateByThemselves) {
  const Communicator half = all.split(rank % 2, -rank);
  EXPECT_EQ(half.size(), (size + 1 - rank % 2) / 2);
  EXPECT_EQ(half.rank(), half.size() - 1 - rank / 2);  // the key turns the order round
  auto values = on_device(Ints{rank, 1});
  half.all_reduce(stream, values);
  int sum = 0;
  for (int i = rank % 2; i < size; i += 2) sum += i;
  EXPECT_EQ(on_host(values), (Ints{sum, half.size()}));
}

TEST_F(Order, ConcurrentCommunicatorsOfOneProcessEach) {
  const Communicator own = all.split(rank);
  auto values = on_device(Ints{rank});
  own.all_reduce(stream, values);
  EXPECT_EQ(on_host(values), Ints{rank});
  EXPECT_EQ(own.size(), 1);
}

TEST_F(Order, AConcurrentCommunicatorDoesNotWaitForOthers) {
  if (!Device::current().has_stream_memory_operations() && !streams_are_threads())
    GTEST_SKIP() << "the operation needs host functions, and the runtime may run one at a time";
  const Communicator other = make({.concurrent = true});
  const Stream second;
  DeviceInts a{8, stream}, b{8, second};
  fill(stream, a, 1);
  fill(second, b, 1);
  Gate gate{stream};
  all.all_reduce(stream, a);
  other.all_reduce(second, b);
  EXPECT_TRUE(second.synchronize_for(patience));
  meet();
  gate.open();
  EXPECT_EQ(on_host(a), Ints(8, size));
}

}}  // namespace comm
