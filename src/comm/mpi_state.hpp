// SPDX-License-Identifier: Apache-2.0
/// A communicator over MPI.
#pragma once

#include "comm/state.hpp"

#include <runnel/config.hpp>

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace runnel::inline RUNNEL_ABI::detail {

class Stager;
/// No operations will follow: its thread ends after the last one.
void close_stager(Stager& stager) noexcept;

struct MpiState final : CommunicatorState {
  MpiState(MPI_Comm parent, const CommunicatorOptions& given);
  ~MpiState() override;

  void require_engine(const char* operation) const override;
  void enqueue(StreamRef stream, std::span<const Exchange> steps) override;
  [[nodiscard]] std::shared_ptr<CommunicatorState> split(int color, int key) override;
  /// An operation was given up. When the other processes come to it, MPI goes on with it, so that
  /// it needs the communicator and the memory: they stay until the process ends.
  void leave_to_mpi() { itself_ = shared_from_this(); }

  // Both are the communicator's own, so that the program's messages do not meet them. Operations
  // run in the first one; what the calling thread does itself in the other one, because MPI allows
  // no two operations of all ranks in one communicator at the same time.
  MPI_Comm operations = MPI_COMM_NULL, calls = MPI_COMM_NULL;
  std::shared_ptr<Stager> stager;  // made by the first operation that needs it
  // the arguments of the operation under way, if they are compared
  std::array<std::int64_t, 10> compared{};

 private:
  std::shared_ptr<CommunicatorState> itself_;
  // MPI wants the operations of a communicator in one order. So one on another device than the one
  // before comes behind that one.
  sync::Mutex order_;  // held while an operation is enqueued
  Baton* last_baton_ = nullptr;
};

/// Why an operation could not run.
inline constexpr const char* no_memory = "there was no memory to run it";

/// MPI counts with int: it gets at most so many elements, or bytes, in a call. What is larger is
/// divided. Tests make it small.
extern constinit std::size_t most_elements_in_mpi;

/// Runs some steps in MPI, as one: sends and receives that do not wait for each other, or a single
/// step of another verb. The memory belongs to the host. Holds the calling thread. @throws the
/// reason, and the communicator is broken then
void run_in_mpi(MpiState& state, std::span<const Exchange> steps);

/// Enqueues the steps as one task, for devices whose memory is the host's.
void enqueue_task(const std::shared_ptr<MpiState>& state, StreamRef stream,
                  std::span<const Exchange> steps);
/// Enqueues the steps by way of pinned memory, and a thread that calls MPI. Requires: no other
/// thread does so for this state.
void enqueue_staged(const std::shared_ptr<MpiState>& state, StreamRef stream,
                    std::span<const Exchange> steps);

}  // namespace runnel::inline RUNNEL_ABI::detail
