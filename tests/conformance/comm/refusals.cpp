// SPDX-License-Identifier: Apache-2.0
// Wrong arguments, and communicators that break.
#include <complex>

#include "cases.hpp"

namespace comm { namespace {
using namespace std::chrono_literals;

class Refusals : public Communicators {
 protected:
  /// The communicator still works.
  void TearDown() override {
    if (IsSkipped()) return;
    auto values = on_device(Ints{1});
    all.all_reduce(stream, values);
    EXPECT_EQ(on_host(values), Ints{size});
  }
};

TEST_F(Refusals, WrongArgumentsAreNamed) {
  DeviceInts four{4, stream}, five{5, stream};
  EXPECT_EQ(TEXT_OF(all.all_reduce(stream, four, five)),
            "runnel: could not run all_reduce: the output has another size than the input");
  EXPECT_EQ(TEXT_OF(all.broadcast(stream, four, size)),
            "runnel: could not run broadcast: there is no process " + std::to_string(size) +
                ": there are " + std::to_string(size));
  EXPECT_ERROR(invalid_argument, all.broadcast(stream, four, -1));
  EXPECT_ERROR(invalid_argument, all.send(stream, four, rank));
  EXPECT_ERROR(invalid_argument, all.all_gather(stream, four, five));
  EXPECT_ERROR(invalid_argument, all.reduce_scatter(stream, five, five));
  EXPECT_ERROR(invalid_argument, all.all_to_all(stream, four, five));
  EXPECT_ERROR(invalid_argument, all.split(-1));
  DeviceBuffer<std::complex<float>> complex{4, stream};
  EXPECT_ERROR(invalid_argument, all.all_reduce(stream, complex, Reduce::max));
}

TEST_F(Refusals, NullWithElementsAndRangesBeyondAllAddresses) {
  DeviceInts values{10, stream};
  const DeviceSpan<int> null{static_cast<int*>(nullptr), 10},
      endless{values.data(), ~size_t{0} / sizeof(int)};
  EXPECT_EQ(TEXT_OF(all.all_reduce(stream, null)),
            "runnel: could not run all_reduce: the input is null, and has elements");
  EXPECT_EQ(TEXT_OF(all.all_reduce(stream, values, null)),
            "runnel: could not run all_reduce: the output is null, and has elements");
  EXPECT_EQ(TEXT_OF(all.all_reduce(stream, endless)),
            "runnel: could not run all_reduce: the input ends beyond any address");
  EXPECT_ERROR(invalid_argument, all.broadcast(stream, null));
  EXPECT_ERROR(invalid_argument,
               all.group(stream, [&](Communicator::Group& g) { g.send(null, (rank + 1) % size); }));
  const DeviceSpan<int> nothing;
  all.all_reduce(stream, nothing);
  all.all_gather(stream, nothing, nothing);
  stream.synchronize();
}

TEST_F(Refusals, MemoryThatOverlapsIsRefused) {
  DeviceInts values{10, stream};
  const DeviceSpan<int> whole{values};
  EXPECT_ERROR(invalid_argument, all.all_reduce(stream, whole.subspan(0, 5), whole.subspan(4, 5)));
}

TEST_F(Refusals, AMovedFromCommunicatorIsNamed) {
  Communicator brief = make();
  const Communicator taken{std::move(brief)};
  DeviceInts values{10, stream};
  EXPECT_EQ(TEXT_OF(brief.all_reduce(stream, values)),
            "runnel: could not use a communicator: the communicator was moved from");
  EXPECT_ERROR(invalid_handle, brief.rank());
  EXPECT_ERROR(invalid_handle, brief.split(0));
  EXPECT_EQ(taken.size(), size);
}

TEST_F(Refusals, AMovedFromStreamAndAHostFunction) {
  Stream gone;
  const Stream taken{std::move(gone)};
  DeviceInts values{10, stream};
  EXPECT_ERROR(invalid_handle, all.all_reduce(gone, values));
  std::string operation, split, making;
  stream.launch_host_func([&] {
    operation = TEXT_OF(all.all_reduce(stream, values));
    split = TEXT_OF(all.split(0));
    making = TEXT_OF(make());
  });
  stream.synchronize();
  const std::string reason =
      ": a host function must not use streams, devices or memory of runnel: do it before, or in a "
      "function of on_complete()";
  EXPECT_EQ(operation, "runnel: could not run all_reduce" + reason);
  EXPECT_EQ(split, "runnel: could not split a communicator" + reason);
  EXPECT_EQ(making, "runnel: could not make a communicator" + reason);
}

TEST_F(Refusals, TogetherInsideAnotherOne) {
  const auto nest = [] { Communicator::together([] { Communicator::together([] {}); }); };
  const std::string text =
      "runnel: could not enqueue operations together: another together() of this thread is under "
      "way";
  EXPECT_EQ(text_of(nest), text);
  EXPECT_EQ(text_of(nest), text);
  EXPECT_THROW(Communicator::together([] { throw std::runtime_error{"mine"}; }),
               std::runtime_error);
  Communicator::together([&] { EXPECT_ERROR(not_permitted, all.split(0)); });
  Communicator::together([] {});
}

/// What may break all communicators of a process.
class Breakages : public Communicators {};

TEST_F(Breakages, AProcessThatDoesNotTakePartIsTimedOut) {
  NEEDS_TWO_PROCESSES;
  const Communicator limited = make({.timeout = 1s});
  DeviceInts values{10, stream};
  fill(stream, values, 1);
  limited.all_reduce(stream, values);
  stream.synchronize();
  meet();
  if (rank != 0) {
    const auto begin = Clock::now();
    limited.all_reduce(stream, values);
    limited.broadcast(stream, values);
    EXPECT_ERROR(timed_out, stream.synchronize());
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_ERROR(timed_out, limited.barrier(stream));
    stream.synchronize();
  }
  meet();
}

/// Added to the present time it would overflow.
TEST_F(Breakages, TheLongestTimeoutNeverComes) {
  const Communicator patient = make({.timeout = std::chrono::milliseconds::max()});
  DeviceInts values{10, stream};
  fill(stream, values, 1);
  patient.barrier(stream);
  if (rank == 0) std::this_thread::sleep_for(50ms);
  patient.all_reduce(stream, values);
  stream.synchronize();
  patient.check();
  EXPECT_EQ(on_host(values), Ints(10, size));
}

TEST_F(Breakages, AnAbortedCommunicatorEndsItsOperations) {
  Communicator limited = make({.timeout = 60s});
  DeviceInts values{10, stream};
  Gate gate{stream};
  limited.all_reduce(stream, values);
  limited.abort();
  gate.open();
  EXPECT_EQ(TEXT_OF(stream.synchronize()),
            "runnel: could not use a communicator: abort() was called");
  EXPECT_ERROR(communicator_broken, limited.check());
  meet();
}

}}  // namespace comm
