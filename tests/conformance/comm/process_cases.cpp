// SPDX-License-Identifier: Apache-2.0
// What a process can do only once: begin and end MPI. Each case is a run of this program: see
// processes.py.
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <runnel/communicator.hpp>
#include <runnel/mpi.hpp>
#include <runnel/runnel.hpp>
#include <thread>
#include <vector>

#include "say_error.hpp"

using namespace runnel;
using comm::say_error;

namespace {

int rank() {
  int found = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &found);
  return found;
}
void begin(int wanted = MPI_THREAD_MULTIPLE) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, wanted, &level);
}
void without_mpi() {
  say_error([] { static_cast<void>(mpi::world()); });
}

void too_few_threads() {
  begin(MPI_THREAD_SERIALIZED);
  say_error([] { const Communicator all{mpi::world()}; });
  MPI_Finalize();
}

void after_the_end() {
  begin();
  const Communicator all{mpi::world()};
  const Stream stream;
  DeviceBuffer<int> values{10, stream};
  MPI_Finalize();
  say_error([&] { all.all_reduce(stream, values); });
  say_error([&] { static_cast<void>(all.split(0)); });
  say_error([] { static_cast<void>(mpi::world()); });
}

/// MPI_Finalize() while operations wait for their turn.
void end_while_busy(bool concurrent) {
  begin();
  std::optional<Communicator> all{std::in_place, mpi::world(),
                                  CommunicatorOptions{.concurrent = concurrent}};
  const int size = all->size();
  const Stream stream;
  DeviceBuffer<int> values{1'000'000, stream};
  fill(stream, values, 1);
  stream.synchronize();
  stream.launch_host_func([] { std::this_thread::sleep_for(std::chrono::milliseconds{100}); });
  for (int i = 0; i < 3; ++i) all->all_reduce(stream, values);
  if (concurrent) all.reset();
  MPI_Finalize();
  std::vector<int> found(values.size());
  copy(stream, found, values);
  stream.synchronize();
  std::puts(found == std::vector<int>(found.size(), size * size * size) ? "the sums are right"
                                                                        : "a sum is wrong");
}

/// Neither the communicator nor MPI is ended by the program.
void just_return() {
  begin();
  static const Communicator all{mpi::world()};
  static const Stream stream;
  static DeviceBuffer<int> values{10, stream};
  fill(stream, values, 1);
  all.all_reduce(stream, values);
  stream.synchronize();
  std::puts("done");
  MPI_Finalize();
}

/// One process dies; the others wait for it.
void die() {
  begin();
  const Communicator all{mpi::world()};
  const Stream stream;
  DeviceBuffer<int> values{10, stream};
  fill(stream, values, 1);
  all.all_reduce(stream, values);
  stream.synchronize();
  if (rank() == 1) std::raise(SIGKILL);
  all.all_reduce(stream, values);
  stream.synchronize();
  std::puts("not reached");
}

}  // namespace

int main(int, char** argv) {
  const auto is = [&](const char* name) { return std::strcmp(argv[1], name) == 0; };
  if (is("without_mpi")) without_mpi();
  if (is("too_few_threads")) too_few_threads();
  if (is("after_the_end")) after_the_end();
  if (is("end_while_busy")) end_while_busy(false);
  if (is("end_while_busy_alone")) end_while_busy(true);
  if (is("just_return")) just_return();
  if (is("die")) die();
}
