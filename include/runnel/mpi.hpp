// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_communicator
/// Creates a World from an MPI communicator. The program compiles all of this header itself, with
/// its own <mpi.h>.
#pragma once

#include <runnel/communicator.hpp>
#include <runnel/error.hpp>

#include <mpi.h>

namespace runnel::inline RUNNEL_ABI::mpi {

namespace detail {
/// The version text of the program's MPI library.
[[nodiscard]] inline const char* library() {
  static const auto text = [] {
    struct {
      char chars[MPI_MAX_LIBRARY_VERSION_STRING];
    } version{};
    int length = 0;
    MPI_Get_library_version(version.chars, &length);
    return version;
  }();
  return text.chars;
}
}  // namespace detail

/// Returns a World of the processes of an MPI communicator. All of them must call it. Requires: MPI
/// is initialised with MPI_THREAD_MULTIPLE, and `communicator` lives until the Communicator has
/// been constructed.
/// @throws errc::not_permitted if MPI is not initialised, or finalized already
[[nodiscard]] inline World world(MPI_Comm communicator = MPI_COMM_WORLD) {
  constexpr const char* operation = "find the processes of MPI";
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun == 0)
    runnel::detail::throw_error(errc::not_permitted, operation,
                                "MPI is not initialised: call MPI_Init_thread() first");
  if (ended != 0) runnel::detail::throw_error(errc::not_permitted, operation, "MPI is finalized");
  World made{.mpi_communicator = MPI_Comm_c2f(communicator), .mpi_library = detail::library()};
  MPI_Comm_rank(communicator, &made.rank);
  MPI_Comm_size(communicator, &made.size);
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, made.rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &made.local_rank);
  MPI_Comm_free(&machine);
  made.broadcast = [communicator](void* bytes, std::size_t count) {
    MPI_Bcast(bytes, static_cast<int>(count), MPI_BYTE, 0, communicator);
  };
  return made;
}

/// The MPI communicator that a communicator's operations use. Requires: the program uses it for no
/// operations of its own.
[[nodiscard]] inline MPI_Comm native(const Communicator& communicator) {
  return MPI_Comm_f2c(communicator.mpi_communicator());
}

}  // namespace runnel::inline RUNNEL_ABI::mpi
