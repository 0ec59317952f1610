// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_communicator
/// The processes that communicate.
#pragma once

#include <runnel/config.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace runnel::inline RUNNEL_ABI {

/// The processes that communicate, and the rank of this one. `mpi::world()` of <runnel/mpi.hpp>
/// creates a World from an MPI communicator; the static members create one without MPI.
struct World {
  int rank = 0;  ///< of this process, counted from 0
  int size = 1;  ///< the number of processes
  int local_rank =
      0;  ///< the rank among the processes of the same machine: suitable as the ordinal of a device
  int mpi_communicator = -1;  ///< the handle of an MPI communicator, as MPI_Comm_c2f() returns it.
                              ///< It may be negative in some MPI libraries
  const char* mpi_library = "";  ///< the text of MPI_Get_library_version() in the program; empty
                                 ///< for processes that are not MPI's
  /// Copies the `size` bytes at `bytes` of process 0 to `bytes` of all processes, and returns when
  /// this process has them. All processes call it, and it may throw. Engine::ccl needs it to create
  /// a communicator of several processes.
  std::function<void(void* bytes, std::size_t size)> broadcast = {};

  /// The processes that a launcher has started. It reads the environment variables RANK, WORLD_SIZE
  /// and LOCAL_RANK, which torchrun sets; otherwise those of Slurm, of Open MPI's mpirun, or of a
  /// launcher with PMI. The processes exchange data through the file that RUNNEL_WORLD_FILE names,
  /// as in from_file(). A single process needs no file. @throws errc::not_supported if no launcher
  /// has set its variables, or no file is named; errc::invalid_argument for invalid numbers
  [[nodiscard]] static World from_environment();
  /// Processes that exchange data through a file that all of them can access. They remove the file
  /// afterwards, and a file of an earlier run does no harm. Worlds that exist at the same time need
  /// different names. `broadcast` throws errc::timed_out if a process does not take part within
  /// `patience`. All processes are treated as processes of one machine. @throws
  /// errc::invalid_argument for an empty path, or unless 0 <= rank < size
  [[nodiscard]] static World from_file(const std::string& path, int rank, int size,
                                       std::chrono::milliseconds patience = std::chrono::seconds{
                                           60});
};

}  // namespace runnel::inline RUNNEL_ABI
