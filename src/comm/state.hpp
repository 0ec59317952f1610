// SPDX-License-Identifier: Apache-2.0
/// A communicator as its operations see it.
#pragma once

#include "base/sync.hpp"

#include <runnel/communicator.hpp>
#include <runnel/event.hpp>

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// The order of operations of different streams: each one waits for the one before. Waits only where the stream changes.
class Baton {
 public:
  /// Calls `enqueue()`, which may enqueue work on the stream, behind the operations of other streams so far.
  template <class F>
  void in_turn(StreamRef stream, F enqueue) {
    const std::lock_guard lock{mutex_};
    if (last_ != 0 && last_ != stream.id()) stream.wait_event(done_);
    if (unrecorded_ && *unrecorded_ != stream) stream.wait_stream(*unrecorded_);
    unrecorded_ = stream;  // if the next line but one fails
    enqueue();
    stream.record_event(done_);
    unrecorded_.reset();
    last_ = stream.id();
  }
  /// Holds the calling thread until the operations so far have ended.
  void wait() {
    const std::lock_guard lock{mutex_};
    if (last_ != 0) done_.synchronize();
  }

 private:
  sync::Mutex mutex_;
  Event done_;
  std::uint64_t last_ = 0;               // the stream that has recorded `done_`
  std::optional<StreamRef> unrecorded_;  // has an operation that `done_` does not stand for
};

/// Why a communicator is broken.
struct Breakage {
  errc code;
  const char* operation;
  std::string reason;
};

class Stager;
/// No operations will follow: its thread ends after the last one.
void close_stager(Stager& stager) noexcept;

struct CommunicatorState {
  CommunicatorState(MPI_Comm parent, const CommunicatorOptions& given);
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;
  ~CommunicatorState();

  [[nodiscard]] bool is_broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// The first reason stays.
  void break_with(errc code, const char* operation, std::string reason) noexcept;
  /// @throws the reason, if the communicator is broken
  void check() const;

  CommunicatorOptions options;
  std::string name;
  int rank = 0, size = 1;
  // Both are the communicator's own, so that the program's messages do not meet them. Operations run in the first one; what the calling
  // thread does itself in the other one, because MPI allows no two operations of all ranks in one communicator at the same time.
  MPI_Comm operations = MPI_COMM_NULL, calls = MPI_COMM_NULL;
  std::shared_ptr<Baton> own_baton;  // only with CommunicatorOptions::concurrent
  sync::Mutex stager_lock;
  std::shared_ptr<Stager> stager;  // made by the first operation that needs it

 private:
  sync::Atomic<bool> broken_{false};
  mutable sync::Mutex breakage_lock_;
  std::optional<Breakage> breakage_;
};

/// MPI counts with int: it gets at most so many elements, or bytes, in a call. What is larger is divided. Tests make it small.
extern constinit std::size_t most_elements_in_mpi;

template <class P>
[[nodiscard]] P* at(P* begin, std::size_t bytes) noexcept {
  using Byte = std::conditional_t<std::is_const_v<P>, const std::byte, std::byte>;
  return begin == nullptr ? nullptr : static_cast<Byte*>(begin) + bytes;
}

/// Runs some steps in MPI, as one: sends and receives that do not wait for each other, or a single step of another verb. The memory belongs
/// to the host. Holds the calling thread. @throws the reason, and the communicator is broken then
void run_in_mpi(CommunicatorState& state, std::span<const Transfer> steps);

/// Checks the arguments, before anything is enqueued.
void require_valid(const CommunicatorState& state, const Transfer& step);
/// For error texts: "run all_reduce".
[[nodiscard]] const char* operation_of(Verb verb) noexcept;
/// How many blocks there are in the memory that is read, and in the memory that is written, on this process.
struct Blocks {
  std::size_t in, out;
  std::size_t count;  // elements of each
};
[[nodiscard]] Blocks blocks_of(const CommunicatorState& state, const Transfer& step) noexcept;

/// Enqueues the steps as one task, for devices whose memory is the host's.
void enqueue_task(const std::shared_ptr<CommunicatorState>& state, StreamRef stream, std::span<const Transfer> steps);
/// Enqueues the steps by way of pinned memory, and a thread that calls MPI.
void enqueue_staged(const std::shared_ptr<CommunicatorState>& state, StreamRef stream, std::span<const Transfer> steps);

}  // namespace runnel::inline RUNNEL_ABI::detail
