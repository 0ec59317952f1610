// SPDX-License-Identifier: Apache-2.0
// Communicators, in several processes: mpirun -n 4 comm_tests. Each process runs the same cases in
// the same order. Only the first one prints what passes.
#include <runnel/mpi.hpp>

#include "cases.hpp"

namespace runnel::inline RUNNEL_ABI::detail {
extern constinit std::size_t max_elements_per_mpi_call;  // the library's
}  // namespace runnel::inline RUNNEL_ABI::detail

namespace comm {

runnel::Engine engine() { return runnel::Engine::mpi; }

const runnel::World& world() {
  static const runnel::World& found = *new runnel::World{runnel::mpi::world()};
  return found;
}

void meet() { MPI_Barrier(MPI_COMM_WORLD); }

bool any_process(bool here) {
  int found = here ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return found != 0;
}

}  // namespace comm

/// With --most=N the library gives MPI at most N elements at a time, as it does with 2^30 of them
/// else.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1)
    runnel::detail::max_elements_per_mpi_call =
        std::strtoul(argv[1] + sizeof "--most=" - 1, nullptr, 10);
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  comm::print_failures_only(rank);
  int failed = RUN_ALL_TESTS(), failed_anywhere = 0;
  MPI_Allreduce(&failed, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed_anywhere;
}
