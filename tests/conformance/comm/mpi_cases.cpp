// SPDX-License-Identifier: Apache-2.0
// What only MPI does, or refuses.
#include <runnel/mpi.hpp>

#include "cases.hpp"

namespace comm { namespace {
using namespace std::chrono_literals;

class OverMpi : public Communicators {};

TEST_F(OverMpi, ACaptureRefusesAndGoesOn) {
  DeviceInts values{10, stream};
  stream.synchronize();
  std::error_code inside;
  const Graph graph = capture(stream, [&] {
    inside = code_of([&] { all.all_reduce(stream, values); });
    fill(stream, values, 3);
  });
  EXPECT_EQ(inside, errc::capture);
  graph.launch(stream);
  EXPECT_EQ(on_host(values), Ints(10, 3));
}

TEST_F(OverMpi, AWorldWithoutMpi) {
  EXPECT_ERROR(invalid_argument, Communicator{World{}, {.engine = Engine::mpi}});
  World other = mpi::world();
  other.mpi_library = "Another MPI 1.0";
  EXPECT_ERROR(not_supported, Communicator{other, {.engine = Engine::mpi}});
  EXPECT_EQ(code_of([&] { const Communicator made = make({.timeout = -1ms}); }),
            errc::invalid_argument);
}

TEST_F(OverMpi, ProcessesThatDoNotAgreeAreToldWhatAbout) {
  NEEDS_TWO_PROCESSES;
  const auto expect_refusal = [&](const char* what, auto call) {
    const Communicator checked = make({.checked = true, .name = "halo"});
    call(checked);
    const std::string found = TEXT_OF(stream.synchronize());
    EXPECT_NE(
        found.find("communicator 'halo': the processes do not agree about " + std::string{what}),
        std::string::npos)
        << found;
    EXPECT_ERROR(invalid_argument, checked.barrier(stream));
    EXPECT_ERROR(invalid_argument, checked.check());
  };
  DeviceInts values{10, stream};
  DeviceBuffer<float> floats{10, stream};
  const DeviceSpan<int> some = DeviceSpan<int>{values}.subspan(0, rank == 0 ? 5 : 10);
  expect_refusal("the number of elements",
                 [&](const Communicator& c) { c.all_reduce(stream, some); });
  expect_refusal("the type of the elements", [&](const Communicator& c) {
    rank == 0 ? c.all_reduce(stream, values) : c.all_reduce(stream, floats);
  });
  expect_refusal("the reduction", [&](const Communicator& c) {
    c.all_reduce(stream, values, rank == 0 ? Reduce::min : Reduce::max);
  });
  expect_refusal("the root",
                 [&](const Communicator& c) { c.broadcast(stream, values, rank == 0 ? 0 : 1); });
  expect_refusal("the operation", [&](const Communicator& c) {
    rank == 0 ? c.barrier(stream) : c.broadcast(stream, values);
  });
}

TEST_F(OverMpi, AMessageThatIsTooShortIsNamed) {
  NEEDS_TWO_PROCESSES;
  const Communicator brief = make();
  DeviceInts values{10, stream};
  if (rank == 0) brief.send(stream, DeviceSpan<int>{values}.subspan(0, 5), 1);
  if (rank == 1) {
    brief.receive(stream, values, 0);
    EXPECT_EQ(
        TEXT_OF(stream.synchronize()),
        "runnel: could not receive elements: process 0 sent 20 bytes of the 40 that were expected");
  }
  stream.synchronize();
}

TEST_F(OverMpi, AnEmptyMessageInAGroupWithALargeOneIsSent) {
  NEEDS_TWO_PROCESSES;
  DeviceInts none{0, stream}, much_in{700'000, stream};
  const auto much = on_device(numbers<int>(700'000, 5));
  if (rank == 0)
    all.group(stream, [&](Communicator::Group& group) {
      group.send(none, 1);
      group.send(much, 1);
    });
  if (rank == 1) {
    all.receive(stream, none, 0);
    all.receive(stream, much_in, 0);
    EXPECT_EQ(on_host(much_in), numbers<int>(700'000, 5));
  }
  stream.synchronize();
}

TEST_F(OverMpi, AMessageThatIsTooLongIsNamed) {
  NEEDS_TWO_PROCESSES;
  const Communicator brief = make();
  DeviceInts values{10, stream};
  if (rank == 0) brief.send(stream, values, 1);
  if (rank == 1) {
    brief.receive(stream, DeviceSpan<int>{values}.subspan(0, 5), 0);
    const std::string found = TEXT_OF(stream.synchronize());
    EXPECT_NE(found.find("the processes do not agree about the number of elements"),
              std::string::npos)
        << found;
  }
  stream.synchronize();
}

/// MPI goes on with an operation that was given up once the last process comes to it.
TEST_F(OverMpi, AProcessThatComesLateFindsNobodyHarmed) {
  NEEDS_TWO_PROCESSES;
  DeviceInts values{1000, stream};
  fill(stream, values, 1);
  for (const bool checked : {false, true}) {
    std::optional<Communicator> limited{make({.timeout = 1s, .checked = checked})};
    limited->all_reduce(stream, values, Reduce::max);
    stream.synchronize();
    meet();
    if (rank != 0) {
      limited->all_reduce(stream, values, Reduce::max);
      EXPECT_ERROR(timed_out, stream.synchronize());
      limited.reset();
    }
    meet();
    if (rank == 0) {
      limited->all_reduce(stream, values, Reduce::max);
      // MPI may have all it needs from the others, or not
      drop(code_of([&] { stream.synchronize(); }));
    }
    meet();
    repeat(100, [&] { all.all_reduce(stream, values, Reduce::max); });
    EXPECT_EQ(on_host(values), Ints(1000, 1));
  }
}

/// MPICH gives the number of a communicator that was freed to the next one.
TEST_F(OverMpi, AMessageThatNobodyReceivedDoesNotReachALaterCommunicator) {
  NEEDS_TWO_PROCESSES;
  for (int round : range(5)) {
    auto values = on_device(numbers<int>(10, round, 0));
    {
      Communicator brief = make();
      if (rank == 0) brief.send(stream, values, 1);
      stream.synchronize();
      meet();
      brief.abort();
    }
    const Communicator later = make();
    const auto part = values.span().subspan(0, 5);
    if (rank == 0) fill(stream, part, 100);
    if (rank == 0) later.send(stream, part, 1);
    if (rank == 1) later.receive(stream, part, 0);
    stream.synchronize();
    if (rank == 1) {
      EXPECT_EQ(on_host(values).front(), 100);
    }
    meet();
  }
}

/// The processes have the same current device, or a device of the stand-in that has the same name.
TEST_F(OverMpi, IsTheAutomaticEngineOfProcessesThatShareADevice) {
  NEEDS_TWO_PROCESSES;
  const Communicator made{world()};
  EXPECT_EQ(made.engine(), Engine::mpi);
  auto values = on_device(Ints(10, 1));
  made.all_reduce(stream, values);
  EXPECT_EQ(on_host(values), Ints(10, size));
}

/// One of two streams is held up, not the same one in all processes. MPI gets the operations of a
/// communicator in the order of the calls.
TEST_F(OverMpi, OneCommunicatorInStreamsOfTwoDevices) {
  if (Device::count() < 2) GTEST_SKIP() << "needs two devices";
  constexpr size_t elements = 1'000'000;  // takes several turns of the ring
  const Stream second{Device{1}};
  DeviceInts a{elements, stream}, b{elements, second};
  for (const bool concurrent : {false, true}) {
    const Communicator both = make({.concurrent = concurrent});
    for (int round : range(4)) {
      fill(stream, a, 1);
      fill(second, b, 1000);
      Gate gate;
      const bool is_first_late = (rank + round) % 2 == 0;
      gate.close_on(is_first_late ? StreamRef{stream} : StreamRef{second});
      both.all_reduce(stream, a);
      both.all_reduce(second, b);
      meet();
      // so long, the wrong one could come first
      drop((is_first_late ? second : stream).synchronize_for(20ms));
      if (is_first_late) {
        EXPECT_PENDING(second);
      }
      gate.open();
      EXPECT_EQ(on_host(a), Ints(elements, size));
      EXPECT_EQ(read_back(second, b), Ints(elements, 1000 * size));
      meet();
    }
  }
}

/// MPI is how the processes of the other engine meet.
TEST_F(OverMpi, TheOtherEngineInTheSameProgram) {
  if (streams_are_threads()) {
    EXPECT_ERROR(not_supported, Communicator{world(), {.engine = Engine::ccl}});
    return;
  }
  if (std::getenv("RUNNEL_STANDIN") == nullptr && size > 1)
    GTEST_SKIP() << "NCCL refuses two processes on one device";
  std::optional<Communicator> other;
  const std::error_code code =
      code_of([&] { other.emplace(world(), CommunicatorOptions{.engine = Engine::ccl}); });
  if (code == errc::not_supported) GTEST_SKIP() << "built without NCCL";
  ASSERT_EQ(code, nothing_thrown);
  EXPECT_EQ(other->engine(), Engine::ccl);
  EXPECT_EQ(other->rank(), rank);
  auto values = on_device(Ints(1000, 1));
  repeat(3, [&] {
    other->all_reduce(stream, values);
    all.all_reduce(stream, values, Reduce::max);
  });
  EXPECT_EQ(on_host(values), Ints(1000, size * size * size));
}

}}  // namespace comm
