// SPDX-License-Identifier: Apache-2.0
// A program of several processes: it adds their numbers, and prints the sum once.
#include <cstdio>
#include <runnel/communicator.hpp>
#include <runnel/mpi.hpp>
#include <runnel/runnel.hpp>
#include <vector>

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  if (runnel::Device::count() > 0) {
    const runnel::Communicator all{runnel::mpi::world()};
    const runnel::Stream stream;
    runnel::DeviceBuffer<int> number{1U, stream};
    runnel::fill(stream, number, all.rank() + 1);
    all.all_reduce(stream, number);
    std::vector<int> sum(1);
    runnel::copy(stream, sum, number);
    stream.synchronize();
    if (all.rank() == 0)
      std::printf("%s: %d processes, sum %d\n", RUNNEL_BACKEND, all.size(), sum[0]);
  }
  MPI_Finalize();
}
