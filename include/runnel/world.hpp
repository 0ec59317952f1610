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

/// The processes that communicate, and this one's place among them. `mpi::world()` of
/// <runnel/mpi.hpp> makes one of MPI's processes; the members below make one without MPI.
struct World {
  int rank = 0;  ///< of this process, from 0
  int size = 1;  ///< how many processes
  int local_rank =
      0;  ///< of this process among those of the same machine: a good choice of a device
  int mpi_communicator = -1;     ///< the handle of an MPI communicator, as MPI_Comm_c2f() gives it.
                                 ///< Some MPI libraries have negative ones
  const char* mpi_library = "";  ///< what MPI_Get_library_version() says in the program; empty for
                                 ///< processes that are not MPI's
  /// Copies `size` bytes of process 0 to the same place of all processes, and returns when they are
  /// there. All processes call it, and it may throw. Engine::ccl needs it to make a communicator of
  /// several processes.
  std::function<void(void* bytes, std::size_t size)> broadcast = {};

  /// The processes that a launcher has started: RANK, WORLD_SIZE and LOCAL_RANK, as torchrun sets
  /// them; else the variables of Slurm, of Open MPI's mpirun, or of a launcher with PMI. They meet
  /// in the file that RUNNEL_WORLD_FILE names, as in from_file(). One process alone needs no file.
  /// @throws errc::not_supported if no launcher has set its variables, or no file is named;
  /// errc::invalid_argument for numbers that make no sense
  [[nodiscard]] static World from_environment();
  /// Processes that meet in a file, which all of them can see. They leave no file behind, and a
  /// file of an earlier run does no harm. Other worlds at the same time need other names.
  /// `broadcast` throws errc::timed_out if a process does not come within `patience`. All processes
  /// count as processes of one machine. @throws errc::invalid_argument for an empty path, or unless
  /// 0 <= rank < size
  [[nodiscard]] static World from_file(const std::string& path, int rank, int size,
                                       std::chrono::milliseconds patience = std::chrono::seconds{
                                           60});
};

}  // namespace runnel::inline RUNNEL_ABI
