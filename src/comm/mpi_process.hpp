// SPDX-License-Identifier: Apache-2.0
/// The use of MPI that all communicators of a process share.
#pragma once

#include "base/not_copied.hpp"

#include <runnel/config.hpp>

#include <mpi.h>

#include <string>

namespace runnel::inline RUNNEL_ABI::detail {

/// To be called before the first use of MPI. From then on MPI_Finalize() waits for all operations.
/// @throws as Communicator's constructor
void prepare_mpi(const char* operation, const char* library_of_program);
/// @throws errc::not_permitted once MPI is finalized
void require_mpi(const char* operation);
/// While it lives, MPI_Finalize() waits. @throws errc::not_permitted once MPI is finalized
class MpiUse : NotCopied {
 public:
  explicit MpiUse(const char* operation);
  ~MpiUse();
};
/// Frees it once no thread has a MpiUse. In Open MPI 4.1.4 a thread inside MPI reads a
/// communicator after another thread has got its last message and has freed it. If MPI is
/// finalized, or without memory, it is not freed.
void free_communicator(MPI_Comm dropped) noexcept;
/// @throws the error, unless `result` is MPI_SUCCESS
void check_mpi(int result, const char* operation);
/// MPI's own text for the error.
std::string text_of(int result);

}  // namespace runnel::inline RUNNEL_ABI::detail
