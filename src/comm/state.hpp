// SPDX-License-Identifier: Apache-2.0
/// A communicator as its operations see it, whatever engine runs them.
#pragma once

#include "base/sync.hpp"
#include "comm/baton.hpp"

#include <runnel/communicator.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// Why a communicator is broken.
struct Breakage {
  errc code;
  const char* operation;
  std::string reason;
};

/// What an engine implements.
struct CommunicatorState : std::enable_shared_from_this<CommunicatorState> {
  CommunicatorState(Engine of, const CommunicatorOptions& given);
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;
  virtual ~CommunicatorState() = default;

  /// @throws if the engine has ended
  virtual void require_engine(const char* operation) const = 0;
  /// Enqueues sends and receives that do not wait for each other, or a single step of another verb.
  /// Requires: the steps are valid.
  virtual void enqueue(StreamRef stream, std::span<const Exchange> steps) = 0;
  /// As Communicator::split(). Requires: the color is not negative.
  [[nodiscard]] virtual std::shared_ptr<CommunicatorState> split(int color, int key) = 0;
  /// Ends what can be ended. Requires: the communicator is broken.
  virtual void end_operations() noexcept {}
  /// Looks for errors that no operation has met.
  virtual void look_for_errors() {}

  [[nodiscard]] bool is_broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Why it breaks, in parts: they are put together only if this is the first reason, and if there
  /// is memory for it.
  using Words = std::initializer_list<std::string_view>;
  /// The first reason stays. Returns whether this is the first one.
  bool break_with(errc code, const char* operation, Words reason) noexcept;
  /// @throws the reason, if the communicator is broken. Waits until break_with() has called
  /// tell_streams().
  void check() const;

  const Engine engine;  // mpi or ccl
  CommunicatorOptions options;
  std::string name;
  int rank = 0, size = 1;
  std::shared_ptr<Baton> own_baton;               // only with CommunicatorOptions::concurrent
  int mpi_communicator = -1;                      // of Engine::mpi; may be negative there, too
  sync::Atomic<void*> ccl_communicator{nullptr};  // of Engine::ccl; null once it is aborted

 private:
  /// Makes the next synchronize() of each stream that uses the communicator throw the reason.
  /// Requires: is_broken(), so that a thread which catches it finds the communicator broken.
  virtual void tell_streams(const std::exception_ptr& /*reason*/) noexcept {}
  /// Requires: the communicator is broken.
  [[noreturn]] void throw_breakage() const;

  sync::Atomic<bool> broken_{false};
  mutable sync::Mutex breakage_lock_;
  std::optional<Breakage> breakage_;
};

/// @{ Make a communicator of all processes of the world. @throws errc::not_supported if this build
/// is without the engine, and as Communicator's constructor
[[nodiscard]] std::shared_ptr<CommunicatorState> make_mpi_state(const World& world,
                                                                const CommunicatorOptions& options);
[[nodiscard]] std::shared_ptr<CommunicatorState> make_ccl_state(const World& world,
                                                                const CommunicatorOptions& options);
///@}
/// As Communicator::of_devices().
[[nodiscard]] std::vector<std::shared_ptr<CommunicatorState>> make_ccl_states(
    std::span<const Device> devices, const CommunicatorOptions& options);
/// Whether two processes of the world have the same current device, which NCCL and RCCL refuse.
/// Without MPI it is not known, and false. All processes have to call this.
[[nodiscard]] bool do_share_devices(const World& world);
/// Whether this build has Engine::ccl.
[[nodiscard]] bool has_ccl() noexcept;
/// For errors of the functions above.
inline constexpr const char* making_communicator = "make a communicator";

/// Whether an operation that began then takes longer than the timeout, if there is one. A sum would
/// overflow for a timeout of centuries.
[[nodiscard]] inline bool is_late(const CommunicatorOptions& options,
                                  sync::Clock::time_point begin) noexcept {
  return options.timeout.count() != 0 && std::chrono::floor<std::chrono::milliseconds>(
                                             sync::Clock::now() - begin) >= options.timeout;
}
/// What the error says then.
[[nodiscard]] std::string late_text(const CommunicatorOptions& options);

template <class P>
[[nodiscard]] P* at(P* begin, std::size_t bytes) noexcept {
  using Byte = std::conditional_t<std::is_const_v<P>, const std::byte, std::byte>;
  return begin == nullptr ? nullptr : static_cast<Byte*>(begin) + bytes;
}

/// Checks the arguments, before anything is enqueued.
void require_valid(const CommunicatorState& state, const Exchange& step);
/// Whether the calling thread is in a together().
[[nodiscard]] bool is_in_together() noexcept;
/// Refuses a together() inside another one.
[[noreturn]] void refuse_nested_together();
/// Tells the race checker what the operation will read and write, if it is on.
void declare_accesses(const CommunicatorState& state, StreamRef stream,
                      std::span<const Exchange> steps);
/// For error texts: "run all_reduce".
[[nodiscard]] const char* operation_of(Verb verb) noexcept;
/// How many blocks there are in the memory that is read, and in the memory that is written, on this
/// process.
struct Blocks {
  std::size_t in, out;
  std::size_t count;  // elements of each
};
[[nodiscard]] Blocks blocks_of(const CommunicatorState& state, const Exchange& step) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
