// SPDX-License-Identifier: Apache-2.0
// What only NCCL and RCCL do, or refuse.
#include <complex>
#include <fstream>

#include "cases.hpp"

namespace comm { namespace {
using namespace std::chrono_literals;

class OverCcl : public Communicators {};

TEST_F(OverCcl, TheEngineIsNamed) {
  EXPECT_EQ(all.engine(), Engine::ccl);
  EXPECT_EQ(Communicator(world()).engine(), Engine::ccl);  // automatic
  EXPECT_NE(all.ccl_communicator(), nullptr);
  EXPECT_EQ(all.mpi_communicator(), -1);
}

TEST_F(OverCcl, ReductionsThatTheLibraryDoesNotHaveAreRefused) {
  DeviceBuffer<std::int16_t> small{4, stream};
  EXPECT_ERROR(not_supported, all.all_reduce(stream, small));
  DeviceBuffer<std::complex<double>> complex{4, stream};
  EXPECT_ERROR(not_supported, all.all_reduce(stream, complex, Reduce::product));
  EXPECT_ERROR(not_supported, Communicator{World{}, {.engine = Engine::ccl, .checked = true}});
  EXPECT_ERROR(invalid_argument, Communicator{World{.size = 2}, {.engine = Engine::ccl}});
}

TEST_F(OverCcl, ACaptureRecordsOperations) {
  DeviceInts values{1000, stream};
  const Graph graph = capture(stream, [&] {
    fill(stream, values, rank + 1);
    all.all_reduce(stream, values);
    all.barrier(stream);
  });
  repeat(3, [&] {
    fill(stream, values, -1);
    graph.launch(stream);
    EXPECT_EQ(on_host(values), Ints(1000, size * (size + 1) / 2));
  });
}

TEST_F(OverCcl, OperationsOfTogetherAreOne) {
  const Communicator other = make();
  const Stream second;
  DeviceInts a{100, stream}, b{100, second};
  fill(stream, a, 1);
  fill(second, b, 2);
  Communicator::together([&] {
    all.all_reduce(stream, a);
    other.all_reduce(second, b);
    EXPECT_ERROR(invalid_argument, all.broadcast(stream, a, size));
  });
  EXPECT_EQ(on_host(a), Ints(100, size));
  stream.wait_stream(second);
  EXPECT_EQ(on_host(b), Ints(100, 2 * size));
}

TEST_F(OverCcl, ATogetherWhoseFunctionThrowsEnqueuesNothing) {
  DeviceInts a{100, stream};
  fill(stream, a, 1);
  EXPECT_THROW(Communicator::together([&] {
                 all.all_reduce(stream, a);
                 throw 5;
               }),
               int);
  EXPECT_EQ(on_host(a), Ints(100, 1));
  Communicator::together([&] {
    EXPECT_ERROR(not_permitted, Communicator::together([] {}));
    EXPECT_ERROR(not_permitted, all.split(0));
  });
}

TEST_F(OverCcl, DevicesOfOneProcess) {
  const int count = Device::count();
  if (count < 2) GTEST_SKIP() << "needs two devices";
  std::vector<Device> devices;
  for (int i : range(count)) devices.emplace_back(i);
  const auto each = Communicator::of_devices(devices);
  Streams streams;
  std::vector<DeviceInts> values;
  for (int i : range(count)) {
    streams.emplace_back(nth(devices, i));
    values.emplace_back(1000, streams.back());
    fill(streams.back(), values.back(), i + 1);
  }
  for (int round : range(20))
    Communicator::together([&] {
      for (size_t i : range(each.size())) each[i].broadcast(streams[i], values[i], round % count);
    });
  for (size_t i : range(each.size())) {
    EXPECT_EQ(each[i].rank(), static_cast<int>(i));
    EXPECT_EQ(read_back(streams[i], values[i]), Ints(1000, 1));
  }
  EXPECT_ERROR(invalid_argument, each[0].barrier(streams[1]));
  EXPECT_ERROR(invalid_argument, Communicator::of_devices(std::vector{devices[0], devices[0]}));
  EXPECT_ERROR(invalid_argument, Communicator::of_devices({}));
}

/// A timeout breaks all communicators of the process, and their streams say so.
TEST_F(OverCcl, ATimeoutEndsAllCommunicators) {
  NEEDS_TWO_PROCESSES;
  const Communicator limited = make({.timeout = 100ms, .name = "solver"});
  const Stream second;
  DeviceInts a{10, stream}, b{10, second};
  if (rank != 0) {
    const auto begin = Clock::now();
    limited.all_reduce(stream, a);
    all.all_reduce(second, b);  // without a timeout
    const std::string found = TEXT_OF(stream.synchronize());
    EXPECT_NE(found.find("communicator 'solver': another process did not take part within the "
                         "timeout of 100 ms"),
              std::string::npos)
        << found;
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_ERROR(communicator_broken, second.synchronize());
    EXPECT_ERROR(communicator_broken, all.check());
    EXPECT_ERROR(timed_out, limited.check());
    EXPECT_ERROR(timed_out, limited.split(0));
    EXPECT_EVENTUALLY(all.ccl_communicator() == nullptr);
    second.synchronize();
  }
  meet();
}

TEST_F(OverCcl, ATimeoutBeginsWhenTheStreamHasComeToTheOperation) {
  const Communicator limited = make({.timeout = 1s});
  DeviceInts a{10, stream};
  fill(stream, a, 1);
  Gate gate{stream};
  limited.all_reduce(stream, a);
  std::this_thread::sleep_for(1200ms);
  meet();
  gate.open();
  EXPECT_EQ(on_host(a), Ints(10, size));
  limited.check();
}

TEST_F(OverCcl, FilesOfAnEarlierRunDoNoHarm) {
  NEEDS_TWO_PROCESSES;
  const std::string path = std::string{std::getenv("RUNNEL_WORLD_FILE")} + ".stale";
  if (rank == 0) {
    for (const std::string& file : {path, path + ".1"}) std::ofstream{file} << "1234 00ff 5678\n";
    meet();
  } else {
    meet();
  }
  // the end of this patience is later than the clock can say
  constexpr std::chrono::hours centuries{24 * 365 * 1000};
  const World again = World::from_file(path, rank, size, centuries);
  for (int round : range(3)) {
    int number = rank == 0 ? 40 + round : 0;
    again.broadcast(&number, sizeof number);
    EXPECT_EQ(number, 40 + round);
  }
  meet();
  if (rank == 0) {
    EXPECT_FALSE(std::ifstream{path}.good());
    EXPECT_FALSE(std::ifstream{path + ".1"}.good());
  }
}

TEST_F(OverCcl, WorldsThatMakeNoSenseAreNamed) {
  EXPECT_ERROR(invalid_argument, World::from_file("", 0, 1).size);
  EXPECT_ERROR(invalid_argument, World::from_file("x", 2, 2).size);
  const World alone = World::from_file(
      std::string{std::getenv("RUNNEL_WORLD_FILE")} + ".alone" + std::to_string(rank), 0, 2, 50ms);
  int number = 0;
  EXPECT_EQ(TEXT_OF(alone.broadcast(&number, sizeof number)),
            "runnel: could not meet the other processes: process 1 did not come");
  const World nowhere = World::from_file("/nowhere/at/all", 1, 2, 50ms);
  EXPECT_ERROR(not_permitted, nowhere.broadcast(&number, sizeof number));
}

TEST_F(OverCcl, EnvironmentsThatMakeNoSenseAreNamed) {
  const char* const names[] = {"RANK", "WORLD_SIZE", "RUNNEL_WORLD_FILE"};
  std::vector<std::string> before;
  for (const char* each : names) before.emplace_back(std::getenv(each));
  const auto expect = [](const char* text) {
    EXPECT_EQ(TEXT_OF(World::from_environment()),
              std::string{"runnel: could not find the processes of this program: "} + text);
  };
  setenv("RANK", "two", 1);
  expect("RANK is no number from 0 to 2147483647: two");
  setenv("RANK", "3", 1);
  setenv("WORLD_SIZE", "2", 1);
  expect("there is no process 3 of 2");
  setenv("RANK", "1", 1);
  unsetenv("RUNNEL_WORLD_FILE");
  expect("RUNNEL_WORLD_FILE has to name a file in which the processes can meet");
  unsetenv("WORLD_SIZE");
  expect("WORLD_SIZE is not set");
  unsetenv("RANK");
  expect("no launcher has set RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK");
  for (size_t i : range(before.size())) setenv(names[i], before[i].c_str(), 1);
}

}}  // namespace comm
