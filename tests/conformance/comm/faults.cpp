// SPDX-License-Identifier: Apache-2.0
// Memory or threads run out while an operation is enqueued, and several threads enqueue.
#include <new>

#include "cases.hpp"

namespace comm { namespace {

class CommFaults : public Communicators {
 protected:
  /// Whether the call says that there is no memory. The program's own allocations throw a plain
  /// std::bad_alloc.
  template <class F>
  static bool without_memory(F f) {
    try {
      f();
      return false;
    } catch (const std::bad_alloc&) {
      return true;
    }
  }
  /// All processes fail at the same place. Either nothing was enqueued, and the next attempt works;
  /// or the communicator is broken, and says so.
  void expect_whole_or_broken(const std::function<void(const Communicator&)>& enqueue) {
    bool happened = true;
    for (long number = 1; happened && number < 100; ++number) {
      SCOPED_TRACE(number);
      const Communicator brief = make({.timeout = 300ms});
      bool found = false;
      {
        const AllocationFault fault{number};
        found = without_memory([&] { enqueue(brief); });
        happened = fault.happened();
      }
      if (found) {
        const std::error_code broken = code_of([&] { brief.check(); });
        if (broken) {
          EXPECT_TRUE(broken == errc::communicator_broken || broken == errc::out_of_memory)
              << broken;
        } else {
          enqueue(brief);
        }
      }
      // The fault may have met the operation itself, or another process, so that this one was
      // alone.
      std::error_code end;
      stream.synchronize(end);
      const bool is_broken = static_cast<bool>(code_of([&] { brief.check(); }));
      EXPECT_TRUE(!end || is_broken);
      EXPECT_TRUE(!is_broken || end || found);
      drop(without_memory([&] { drop(code_of([&] { stream.synchronize(); })); }));
      happened = any_process(happened);
    }
    EXPECT_FALSE(happened) << "100 allocations for one operation";
  }
};

TEST_F(CommFaults, WithoutMemoryAnOperationIsEnqueuedOrNot) {
  if (!streams_are_threads()) GTEST_SKIP() << "the runtime's own allocations would fail too";
  DeviceInts values{1000, stream}, others{1000, stream};
  expect_whole_or_broken([&](const Communicator& c) { c.all_reduce(stream, values); });
  if (size > 1)
    expect_whole_or_broken([&](const Communicator& c) {
      c.group(stream, [&](Communicator::Group& group) {
        group.send(values, (rank + 1) % size);
        group.receive(others, (rank + size - 1) % size);
      });
    });
}

TEST_F(CommFaults, ThreadsOfAProcessMayEnqueueAtTheSameTime) {
  const Communicator own = all.split(rank);
  constexpr int rounds = 50;
  on_threads(4, [&](int i) {
    const Stream mine{stream.device()};
    DeviceInts values{1000, mine};
    for (int round : range(rounds)) {
      fill(mine, values, 4 * round + i);
      own.all_reduce(mine, values);
      EXPECT_EQ(read_back(mine, values), Ints(values.size(), 4 * round + i));
    }
  });
}

TEST_F(CommFaults, CommunicatorsComeAndGo) {
  DeviceInts values{100, stream};
  for (int round : range(30)) {
    const Communicator brief = make({.concurrent = round % 2 == 1});
    const Communicator part = brief.split(round % 3);
    fill(stream, values, 1);
    part.all_reduce(stream, values);
    brief.broadcast(stream, values, round % size);
  }
  EXPECT_EQ(on_host(values), Ints(100, size));
}

}}  // namespace comm
