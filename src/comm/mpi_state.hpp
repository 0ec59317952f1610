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
/// Ends the stager's thread after the last operation. Requires: no operation will follow.
void close_stager(Stager& stager) noexcept;

struct MpiState final : CommunicatorState {
  MpiState(MPI_Comm parent, const CommunicatorOptions& given);
  ~MpiState() override;

  void require_engine(const char* operation) const override;
  void enqueue(StreamRef stream, std::span<const Exchange> steps) override;
  [[nodiscard]] std::shared_ptr<CommunicatorState> split(int color, int key) override;
  /// To be called if an operation is abandoned. MPI may still continue it when the other processes
  /// reach it, so the communicator and its memory are kept until the process ends.
  void keep_alive_for_mpi() { self_reference_ = shared_from_this(); }

  // Both are duplicates, so that the program's messages do not match theirs. `operations` is for
  // operations of streams, `calls` for those of the calling thread itself, because MPI does not
  // allow two operations of all ranks in one communicator at the same time.
  MPI_Comm operations = MPI_COMM_NULL, calls = MPI_COMM_NULL;
  std::shared_ptr<Stager> stager;  // Created by the first operation that needs it.
  // The arguments of the current operation, if they are compared.
  std::array<std::int64_t, 10> compared{};

 private:
  std::shared_ptr<CommunicatorState> self_reference_;
  // MPI requires one order of a communicator's operations. Therefore an operation on another device
  // than the previous one waits for that one.
  sync::Mutex enqueue_lock_;  // Locked while an operation is enqueued.
  SerialOrder* last_order_ = nullptr;
};

/// The reason if an operation cannot run.
inline constexpr const char* no_memory = "there was no memory to run it";

/// The maximum number of elements, or bytes, in one call of MPI, whose counts have the type int.
/// Larger operations are divided. Tests reduce it.
extern constinit size_t max_elements_per_mpi_call;

/// Runs the steps in MPI: sends and receives that do not wait for each other, or a single step with
/// another verb. Blocks the calling thread. Requires: the memory is host memory. @throws the reason
/// if it fails; the communicator is broken then
void run_in_mpi(MpiState& state, std::span<const Exchange> steps);

/// Enqueues the steps through pinned memory and a thread that calls MPI. Requires: no other thread
/// does so for this state.
void enqueue_staged(const std::shared_ptr<MpiState>& state, StreamRef stream,
                    std::span<const Exchange> steps);

}  // namespace runnel::inline RUNNEL_ABI::detail
