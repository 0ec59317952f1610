// SPDX-License-Identifier: Apache-2.0
// Each verb, for several sizes and types.
#include <complex>

#include "cases.hpp"

namespace comm { namespace {

/// Small, odd, and more than a piece of what is staged.
const std::vector<size_t> counts{0, 1, 1000, 300'007, 1'500'000};

class Verbs : public Communicators {
 protected:
  template <class T>
  void expect_sums() {
    for (const size_t count : counts) {
      SCOPED_TRACE(count);
      const auto in = on_device(numbers<T>(count, rank + 1, 0));
      DeviceBuffer<T> out{count, stream};
      all.all_reduce(stream, in, out);
      EXPECT_EQ(on_host(out), numbers<T>(count, size * (size + 1) / 2, 0));
      EXPECT_EQ(on_host(in), numbers<T>(count, rank + 1, 0));
    }
  }
};

TEST_F(Verbs, AllReduceAddsEveryType) {
  expect_sums<std::int8_t>();
  if (engine() == Engine::mpi) expect_sums<std::uint16_t>();
  expect_sums<std::int32_t>();
  expect_sums<uint64_t>();
  expect_sums<long long>();
  expect_sums<float>();
  expect_sums<double>();
  expect_sums<std::complex<float>>();
  expect_sums<std::complex<double>>();
}

TEST_F(Verbs, AllReduceInPlaceWithEveryReduction) {
  const auto reduced = [&](Reduce how) {
    auto values = on_device(numbers<int>(5, rank + 1, 0));
    all.all_reduce(stream, values, how);
    return on_host(values);
  };
  int factorial = 1;
  for (int i = 2; i <= size; ++i) factorial *= i;
  EXPECT_EQ(reduced(Reduce::sum), Ints(5, size * (size + 1) / 2));
  EXPECT_EQ(reduced(Reduce::product), Ints(5, factorial));
  EXPECT_EQ(reduced(Reduce::min), Ints(5, 1));
  EXPECT_EQ(reduced(Reduce::max), Ints(5, size));
}

TEST_F(Verbs, ReduceGivesTheResultToTheRootOnly) {
  for (const size_t count : counts)
    for (int root : range(size)) {
      const auto in = on_device(numbers<double>(count, rank + 1));
      DeviceBuffer<double> out{root == rank ? count : 0, stream};
      all.reduce(stream, in, out, Reduce::sum, root);
      const auto expected = numbers<double>(count, size * (size + 1) / 2, size);
      if (root == rank) {
        EXPECT_EQ(on_host(out), expected);
      }
      stream.synchronize();
      EXPECT_EQ(on_host(in), numbers<double>(count, rank + 1));
    }
}

TEST_F(Verbs, ReduceScatterGivesEachItsPart) {
  for (const size_t count : counts) {
    const auto in = on_device(numbers<int>(count * n, rank));
    DeviceInts out{count, stream};
    all.reduce_scatter(stream, in, out);
    const double first = size * (size - 1) / 2 + static_cast<double>(r * count) * size;
    EXPECT_EQ(on_host(out), numbers<int>(count, first, size)) << count;
  }
}

TEST_F(Verbs, BroadcastCopiesTheRootsElements) {
  struct Place {
    double x;
    int y[3];
    bool operator==(const Place& other) const {
      return x == other.x && std::equal(y, y + 3, other.y);
    }
  };
  for (const size_t count : counts)
    for (int root : range(size)) {
      const auto of = [&](int process) {
        return std::vector<Place>(count, Place{0.5 * process, {process, 2, 3}});
      };
      auto values = on_device(of(rank));
      all.broadcast(stream, values, root);
      EXPECT_EQ(on_host(values), of(root));
    }
}

TEST_F(Verbs, AllGatherPutsAllOneAfterTheOther) {
  for (const size_t count : counts) {
    const auto in = on_device(numbers<short>(count, 100 * rank, 0));
    DeviceBuffer<short> out{count * n, stream};
    all.all_gather(stream, in, out);
    std::vector<short> expected;
    for (int i : range(size)) expected.insert(expected.end(), count, static_cast<short>(100 * i));
    EXPECT_EQ(on_host(out), expected);
    // In place.
    all.all_gather(stream, DeviceSpan<short>{out}.subspan(r * count, count), out);
    EXPECT_EQ(on_host(out), expected);
  }
}

TEST_F(Verbs, AllToAllExchangesParts) {
  for (const size_t count : counts) {
    std::vector<uint32_t> values;
    for (int to : range(size))
      values.insert(values.end(), count, static_cast<uint32_t>(100 * rank + to));
    const auto in = on_device(values);
    DeviceBuffer<uint32_t> out{values.size(), stream};
    all.all_to_all(stream, in, out);
    std::vector<uint32_t> expected;
    for (int from : range(size))
      expected.insert(expected.end(), count, static_cast<uint32_t>(100 * from + rank));
    EXPECT_EQ(on_host(out), expected);
  }
}

TEST_F(Verbs, SendAndReceiveRoundARing) {
  NEEDS_TWO_PROCESSES;
  for (const size_t count : counts) {
    auto values = on_device(numbers<float>(count, rank));
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    if (rank == 0) all.send(stream, values, next);
    all.receive(stream, values, before);
    if (rank != 0) all.send(stream, values, next);
    EXPECT_EQ(on_host(values), numbers<float>(count, 0));
  }
}

TEST_F(Verbs, AGroupMaySendFirstEverywhere) {
  NEEDS_TWO_PROCESSES;
  for (const size_t count : counts) {
    const auto own = on_device(numbers<int>(count, rank));
    std::vector<DeviceInts> others;
    repeat(size, [&] { others.emplace_back(count, stream); });
    all.group(stream, [&](Communicator::Group& group) {
      for (int to : range(size))
        if (to != rank) group.send(own, to);
      for (int from : range(size))
        if (from != rank) group.receive(nth(others, from), from);
    });
    for (int from : range(size))
      if (from != rank) {
        EXPECT_EQ(on_host(nth(others, from)), numbers<int>(count, from));
      }
  }
}

TEST_F(Verbs, AGroupWhoseFunctionThrowsEnqueuesNothing) {
  NEEDS_TWO_PROCESSES;
  const auto own = on_device(numbers<int>(5, rank));
  EXPECT_THROW(all.group(stream,
                         [&](Communicator::Group& group) {
                           group.send(own, (rank + 1) % size);
                           throw 5;
                         }),
               int);
  all.barrier(stream);
  stream.synchronize();
}

TEST_F(Verbs, MessagesOfSeveralPiecesMeetSmallOnes) {
  NEEDS_TWO_PROCESSES;
  // Everybody sends much to the next process, and little to the one before.
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  const auto much = on_device(numbers<double>(700'000, rank)),
             little = on_device(numbers<double>(3, rank));
  DeviceBuffer<double> much_in{700'000, stream}, little_in{3, stream};
  all.group(stream, [&](Communicator::Group& group) {
    group.send(much, next);
    group.receive(much_in, before);
    group.send(little, before);
    group.receive(little_in, next);
  });
  EXPECT_EQ(on_host(much_in), numbers<double>(700'000, before));
  EXPECT_EQ(on_host(little_in), numbers<double>(3, next));
}

TEST_F(Verbs, AStreamGoesOnAfterABarrierOfAll) {
  Gate gate;
  if (rank == 0) gate.close_on(stream);
  all.barrier(stream);
  if (size > 1 && rank != 0) {
    EXPECT_FALSE(stream.synchronize_for(20ms));
  }
  meet();
  gate.open();
  EXPECT_TRUE(stream.synchronize_for(patience));
}

TEST_F(Verbs, ManagedMemoryIsTaken) {
  ManagedBuffer<int> values{100};
  std::fill(values.begin(), values.end(), rank);
  all.all_reduce(stream, values);
  stream.synchronize();
  EXPECT_EQ(values[99], size * (size - 1) / 2);
}

}}  // namespace comm
