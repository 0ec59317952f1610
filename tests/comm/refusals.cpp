// SPDX-License-Identifier: Apache-2.0
// Wrong arguments, and communicators that break.
#include <complex>

#include "cases.hpp"

namespace comm {
namespace {
using namespace runnel;
using namespace std::chrono_literals;

class Refusals : public Communicators {
 protected:
  /// The communicator still works.
  void TearDown() override {
    if (IsSkipped()) return;
    auto values = on_device(std::vector<int>{1});
    all.all_reduce(stream, values);
    EXPECT_EQ(on_host(values), std::vector<int>{size});
  }
};

TEST_F(Refusals, WrongArgumentsAreNamed) {
  DeviceBuffer<int> four{4, stream}, five{5, stream};
  EXPECT_EQ(text_of([&] { all.all_reduce(stream, four, five); }),
            "runnel: could not run all_reduce: the output has another size than the input");
  EXPECT_EQ(text_of([&] { all.broadcast(stream, four, size); }),
            "runnel: could not run broadcast: there is no process " + std::to_string(size) + ": there are " + std::to_string(size));
  EXPECT_EQ(code_of([&] { all.broadcast(stream, four, -1); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { all.send(stream, four, rank); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { all.all_gather(stream, four, five); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { all.reduce_scatter(stream, five, five); }),
            size == 1 ? make_error_code(errc::invalid_argument) : errc::invalid_argument);
  EXPECT_EQ(code_of([&] { all.all_to_all(stream, four, five); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { static_cast<void>(all.split(-1)); }), errc::invalid_argument);
  DeviceBuffer<std::complex<float>> complex{4, stream};
  EXPECT_EQ(code_of([&] { all.all_reduce(stream, complex, Reduce::max); }), errc::invalid_argument);
}

TEST_F(Refusals, MemoryThatOverlapsIsRefused) {
  DeviceBuffer<int> values{10, stream};
  const DeviceSpan<int> whole{values};
  EXPECT_EQ(code_of([&] { all.all_reduce(stream, whole.subspan(0, 5), whole.subspan(4, 5)); }), errc::invalid_argument);
}

TEST_F(Refusals, AMovedFromCommunicatorIsNamed) {
  Communicator brief{mpi::world()};
  const Communicator taken{std::move(brief)};
  DeviceBuffer<int> values{10, stream};
  EXPECT_EQ(text_of([&] { brief.all_reduce(stream, values); }), "runnel: could not use a communicator: the communicator was moved from");
  EXPECT_EQ(code_of([&] { static_cast<void>(brief.rank()); }), errc::invalid_handle);
  EXPECT_EQ(code_of([&] { static_cast<void>(brief.split(0)); }), errc::invalid_handle);
  EXPECT_EQ(taken.size(), size);
}

TEST_F(Refusals, AMovedFromStreamAndAHostFunction) {
  Stream gone;
  const Stream taken{std::move(gone)};
  DeviceBuffer<int> values{10, stream};
  EXPECT_EQ(code_of([&] { all.all_reduce(gone, values); }), errc::invalid_handle);
  std::error_code inside;
  stream.launch_host_func([&] { inside = code_of([&] { all.all_reduce(stream, values); }); });
  stream.synchronize();
  EXPECT_EQ(inside, errc::not_permitted);
}

TEST_F(Refusals, ACaptureRefusesAndGoesOn) {
  DeviceBuffer<int> values{10, stream};
  stream.synchronize();
  std::error_code inside;
  const Graph graph = capture(stream, [&] {
    inside = code_of([&] { all.all_reduce(stream, values); });
    fill(stream, values, 3);
  });
  EXPECT_EQ(inside, errc::capture);
  graph.launch(stream);
  EXPECT_EQ(on_host(values), std::vector<int>(10, 3));
}

TEST_F(Refusals, AWorldWithoutMpi) {
  EXPECT_EQ(code_of([] { const Communicator made{World{}}; }), errc::invalid_argument);
  World other = mpi::world();
  other.mpi_library = "Another MPI 1.0";
  EXPECT_EQ(code_of([&] { const Communicator made{other}; }), errc::not_supported);
  EXPECT_EQ(code_of([&] { const Communicator made{mpi::world(), {.timeout = -1ms}}; }), errc::invalid_argument);
}

TEST_F(Refusals, ProcessesThatDoNotAgreeAreToldWhatAbout) {
  if (size == 1) GTEST_SKIP() << "needs two processes";
  const auto expect_refusal = [&](const char* what, auto call) {
    const Communicator checked{mpi::world(), {.checked = true, .name = "halo"}};
    call(checked);
    const std::string found = text_of([&] { stream.synchronize(); });
    EXPECT_NE(found.find("communicator 'halo': the processes do not agree about " + std::string{what}), std::string::npos) << found;
    EXPECT_EQ(code_of([&] { checked.barrier(stream); }), errc::invalid_argument);
    EXPECT_EQ(code_of([&] { checked.check(); }), errc::invalid_argument);
  };
  DeviceBuffer<int> values{10, stream};
  DeviceBuffer<float> floats{10, stream};
  const DeviceSpan<int> some = DeviceSpan<int>{values}.subspan(0, rank == 0 ? 5 : 10);
  expect_refusal("the number of elements", [&](const Communicator& c) { c.all_reduce(stream, some); });
  expect_refusal("the type of the elements",
                 [&](const Communicator& c) { rank == 0 ? c.all_reduce(stream, values) : c.all_reduce(stream, floats); });
  expect_refusal("the reduction", [&](const Communicator& c) { c.all_reduce(stream, values, rank == 0 ? Reduce::min : Reduce::max); });
  expect_refusal("the root", [&](const Communicator& c) { c.broadcast(stream, values, rank == 0 ? 0 : 1); });
  expect_refusal("the operation", [&](const Communicator& c) { rank == 0 ? c.barrier(stream) : c.broadcast(stream, values); });
}

TEST_F(Refusals, AProcessThatDoesNotTakePartIsTimedOut) {
  if (size == 1) GTEST_SKIP() << "needs two processes";
  const Communicator limited{mpi::world(), {.timeout = 100ms}};
  DeviceBuffer<int> values{10, stream};
  fill(stream, values, 1);
  limited.all_reduce(stream, values);
  stream.synchronize();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) {
    const auto begin = std::chrono::steady_clock::now();
    limited.all_reduce(stream, values);
    limited.broadcast(stream, values);
    EXPECT_EQ(code_of([&] { stream.synchronize(); }), errc::timed_out);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    EXPECT_EQ(code_of([&] { limited.barrier(stream); }), errc::timed_out);
    stream.synchronize();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_F(Refusals, AnAbortedCommunicatorEndsItsOperations) {
  Communicator limited{mpi::world(), {.timeout = 60s}};
  DeviceBuffer<int> values{10, stream};
  Gate gate;
  gate.close_on(stream);
  limited.all_reduce(stream, values);
  limited.abort();
  gate.open();
  EXPECT_EQ(text_of([&] { stream.synchronize(); }), "runnel: could not use a communicator: abort() was called");
  EXPECT_EQ(code_of([&] { limited.check(); }), errc::communicator_broken);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_F(Refusals, AMessageThatIsTooShortIsNamed) {
  if (size == 1) GTEST_SKIP() << "needs two processes";
  const Communicator brief{mpi::world()};
  DeviceBuffer<int> values{10, stream};
  if (rank == 0) brief.send(stream, DeviceSpan<int>{values}.subspan(0, 5), 1);
  if (rank == 1) {
    brief.receive(stream, values, 0);
    EXPECT_EQ(text_of([&] { stream.synchronize(); }),
              "runnel: could not receive elements: process 0 sent 20 bytes of the 40 that were expected");
  }
  stream.synchronize();
}

TEST_F(Refusals, AMessageThatIsTooLongIsNamed) {
  if (size == 1) GTEST_SKIP() << "needs two processes";
  const Communicator brief{mpi::world()};
  DeviceBuffer<int> values{10, stream};
  if (rank == 0) brief.send(stream, values, 1);
  if (rank == 1) {
    brief.receive(stream, DeviceSpan<int>{values}.subspan(0, 5), 0);
    const std::string found = text_of([&] { stream.synchronize(); });
    EXPECT_NE(found.find("the processes do not agree about the number of elements"), std::string::npos) << found;
  }
  stream.synchronize();
}

}  // namespace
}  // namespace comm
