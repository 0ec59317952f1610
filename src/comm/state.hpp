// SPDX-License-Identifier: Apache-2.0
/// The part of a communicator that is common to all engines.
#pragma once

#include "base/not_copied.hpp"
#include "base/sync.hpp"
#include "comm/serial_order.hpp"

#include <runnel/communicator.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// The interface that an engine implements.
struct CommunicatorState : std::enable_shared_from_this<CommunicatorState>, NotCopied {
  CommunicatorState(Engine of, const CommunicatorOptions& given);
  virtual ~CommunicatorState() = default;

  /// @throws if the engine was finalized
  virtual void require_engine(const char* /*operation*/) const {}
  /// Enqueues sends and receives that do not wait for each other, or a single step with another
  /// verb. Requires: the steps are valid.
  virtual void enqueue(StreamRef stream, std::span<const Exchange> steps) = 0;
  /// As Communicator::split(). Requires: the color is not negative.
  [[nodiscard]] virtual std::shared_ptr<CommunicatorState> split(int color, int key) = 0;
  /// Ends the operations that can be ended. Requires: the communicator is broken.
  virtual void end_operations() noexcept {}
  /// Polls for errors that no call has returned. Breaks the communicator if there is one.
  virtual void look_for_errors() {}

  bool is_broken() const noexcept { return broken_; }
  /// Breaks the communicator. `more` follows the reason in the text of the error. Only the first
  /// reason is stored; returns whether this is the first one.
  bool break_with(errc code, const char* operation, const char* reason,
                  const char* more = "") noexcept;
  /// The same. The first one also ends the operations.
  void break_and_end(errc code, const char* operation, const char* reason,
                     const char* more = "") noexcept {
    if (break_with(code, operation, reason, more)) end_operations();
  }
  /// @throws the reason if the communicator is broken. Waits until break_with() has called
  /// notify_streams()
  void check() const;

  const Engine engine;  // Engine::mpi or Engine::ccl.
  CommunicatorOptions options;
  std::string name;
  int rank = 0, size = 1;
  std::shared_ptr<SerialOrder> own_order;         // Only with CommunicatorOptions::concurrent.
  int mpi_communicator = -1;                      // For Engine::mpi, where it may be negative, too.
  sync::Atomic<void*> ccl_communicator{nullptr};  // For Engine::ccl; null once it was aborted.

 private:
  /// Makes the next synchronize() of each stream that uses the communicator throw the reason.
  /// Requires: is_broken(), so that a thread which catches it finds the communicator broken.
  virtual void notify_streams(const std::exception_ptr& /*reason*/) noexcept {}

  sync::Atomic<bool> broken_{false};
  mutable sync::Mutex reason_lock_;
  std::exception_ptr reason_;
};

/// @{ Create a communicator of all processes of the world. @throws errc::not_supported if this
/// build lacks the engine, and as Communicator's constructor
[[nodiscard]] std::shared_ptr<CommunicatorState> make_mpi_state(const World& world,
                                                                const CommunicatorOptions& options);
[[nodiscard]] std::shared_ptr<CommunicatorState> make_ccl_state(const World& world,
                                                                const CommunicatorOptions& options);
///@}
/// As Communicator::of_devices().
[[nodiscard]] std::vector<std::shared_ptr<CommunicatorState>> make_ccl_states(
    std::span<const Device> devices, const CommunicatorOptions& options);
/// Whether two processes of the world have the same current device, which NCCL and RCCL refuse.
/// Returns false without MPI, because it is unknown then. All processes must call this.
bool do_share_devices(const World& world);
/// Whether this build has Engine::ccl.
bool has_ccl() noexcept;
/// The operation's name in errors of the functions above.
inline constexpr const char* making_communicator = "make a communicator";

/// Whether an operation that began at `begin` has exceeded the timeout, if there is one. The
/// difference is compared because a sum would overflow for a timeout of centuries.
inline bool is_late(const CommunicatorOptions& options, sync::Clock::time_point begin) noexcept {
  return options.timeout.count() != 0 && std::chrono::floor<std::chrono::milliseconds>(
                                             sync::Clock::now() - begin) >= options.timeout;
}
/// The text of the error then.
std::string late_text(const CommunicatorOptions& options);

template <class P>
[[nodiscard]] P* at(P* begin, size_t bytes) noexcept {
  using Byte = std::conditional_t<std::is_const_v<P>, const std::byte, std::byte>;
  return begin == nullptr ? nullptr : static_cast<Byte*>(begin) + bytes;
}

inline bool is_complex(Element element) noexcept {
  return element == Element::complex64 || element == Element::complex128;
}

inline constexpr Exchange barrier_step{
    Verb::barrier, Element::bytes, Reduce::sum, 0, 1, nullptr, 0, nullptr, 0};
inline bool is_message(Verb verb) noexcept { return verb == Verb::send || verb == Verb::receive; }
/// Whether the step is a permitted in-place operation.
bool is_in_place(const CommunicatorState& state, const Exchange& step) noexcept;
/// Checks the arguments before anything is enqueued.
void require_valid(const CommunicatorState& state, const Exchange& step);
/// Whether the calling thread is in a together().
bool is_in_together() noexcept;
/// Throws the error for a together() inside another one.
[[noreturn]] void refuse_nested_together();
/// Declares to the race checker, if it is on, what the operation will read and write.
void declare_accesses(const CommunicatorState& state, StreamRef stream,
                      std::span<const Exchange> steps);
/// The operation's name in error texts, such as "run all_reduce".
const char* operation_of(Verb verb) noexcept;
/// The number of blocks in the memory that this process reads, and in the memory that it writes.
struct Blocks {
  size_t in, out;
  size_t count;  // Elements in each block.
  size_t bytes;  // In each block.
};
[[nodiscard]] Blocks blocks_of(const CommunicatorState& state, const Exchange& step) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
