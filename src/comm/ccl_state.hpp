// SPDX-License-Identifier: Apache-2.0
/// A communicator over a library of collective operations on devices.
#pragma once

#include "comm/ccl.hpp"
#include "comm/state.hpp"

#include <runnel/device.hpp>
#include <runnel/memory.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// What outlives a communicator until its operations have ended.
struct Remains {
  Remains(Device device, std::shared_ptr<Baton> own_baton);

  const Stream stream;                 // for operations of the communicator's own
  DeviceBuffer<std::uint32_t> number;  // what a barrier reduces
  const std::shared_ptr<Baton> own_baton;
  Baton& baton;
  ccl::Handle communicator = nullptr;
};

struct AbortCommunicator {
  void operator()(ccl::Handle communicator) const noexcept {
    static_cast<void>(ccl::abort(communicator));
  }
};
/// A communicator of the library's that no CclState has taken over. It has no operations.
using NewCommunicator = std::unique_ptr<void, AbortCommunicator>;

struct CclState final : CommunicatorState {
  /// Takes over a communicator of the library's, unless it throws.
  CclState(const CommunicatorOptions& given, Device of, ccl::Handle made, int own_rank, int ranks);
  ~CclState() override;

  void require_engine(const char*) const override {}
  void enqueue(StreamRef stream, std::span<const Exchange> steps) override;
  [[nodiscard]] std::shared_ptr<CommunicatorState> split(int color, int key) override;
  void end_operations() noexcept override;
  void look_for_errors() override;

  [[nodiscard]] std::shared_ptr<CclState> self() {
    return std::static_pointer_cast<CclState>(shared_from_this());
  }
  [[nodiscard]] Baton& baton() const noexcept { return remains_->baton; }
  /// If the communicator breaks, the next synchronize() of the stream throws the reason.
  void note_use(StreamRef stream);
  /// Gives the steps to the library. Requires: `calls` is held; the current device is the
  /// communicator's.
  [[nodiscard]] ccl::status post(StreamRef stream, std::span<const Exchange> steps) const noexcept;
  /// @throws the reason why the library refused, and the communicator is broken then
  void check_call(ccl::status status, const char* operation);
  /// If the library refused an operation, breaks the communicator, because other ranks may wait for
  /// this one.
  void note_call(ccl::status status, const char* operation) noexcept;
  ///@{ An operation of all ranks, in which the library connects them.
  [[nodiscard]] ccl::status post_connection() const noexcept;
  /// `all` are the ranks of this process: an error of one holds up the others, too.
  void wait_for_connection(std::span<const std::shared_ptr<CclState>> all);
  ///@}

  const Device device;
  // Held in calls of the library with the communicator. A call that does not return is ended by an
  // abort, which does not wait long for it.
  sync::Mutex calls;

 private:
  void tell_streams(const std::exception_ptr& reason) noexcept override;
  [[nodiscard]] std::shared_ptr<CommunicatorState> make_part(int color, int key);
  [[nodiscard]] std::vector<std::byte> gather(const void* own, std::size_t bytes);

  std::unique_ptr<Remains> remains_;
  sync::Mutex uses_lock_;
  std::vector<StreamRef> uses_;
};

/// What the operation of a verb is to the library: one call, or several. Requires: as
/// CclState::post().
[[nodiscard]] ccl::status post_step(const CommunicatorState& state, const Exchange& step,
                                    ccl::Handle communicator, native::stream stream,
                                    void* number) noexcept;
/// @throws errc::not_supported for a reduction that the library does not have
void require_supported(const Exchange& step);

/// What `post()` posts, as one.
template <class F>
[[nodiscard]] ccl::status in_group(F post) noexcept {
  if (const ccl::status begin = ccl::group_start(); begin != ccl::ok) return begin;
  const ccl::status status = post();
  const ccl::status end = ccl::group_end();
  return status != ccl::ok ? status : end;
}

/// An operation that may take too long.
struct Watched {
  std::shared_ptr<CclState> state;
  const char* operation;
  Event begin{}, end{};
  std::optional<sync::Clock::time_point> since{};  // when its turn in the stream was seen
};
/// One operation, or none: a list, so that it can be handed over without memory.
using Watch = std::list<Watched>;
/// Before an operation, if the communicator has a timeout: records its begin.
[[nodiscard]] Watch begin_watch(CclState& state, StreamRef stream, const char* operation);
/// After it. From then on a thread looks after the operation. If it throws, the communicator is
/// broken.
void end_watch(Watch watch, StreamRef stream);

///@{ All communicators of the process. An abort of one would wait for the operations of the others.
void enlist(CclState& state);
void delist(CclState& state) noexcept;
///@}
/// Breaks the communicator, and aborts all communicators of the process.
void fail_all(CclState& state, errc code, const char* operation,
              CommunicatorState::Words reason) noexcept;
/// Aborts communicators that are broken, on a thread that may hang. If there is no thread, on this
/// one.
void abort_in_background(std::span<const std::shared_ptr<CclState>> broken) noexcept;
/// Calls `make()` on a thread that may hang. @throws what it throws; nothing if it takes longer
/// than the timeout. What it makes later is aborted.
[[nodiscard]] std::optional<NewCommunicator> make_within(
    std::chrono::milliseconds timeout, std::packaged_task<NewCommunicator()> make);
/// Destroys the library's communicator once its operations have ended, on a thread that may hang.
/// It stays until the process ends if no thread can be started, or if the runtime cannot say
/// whether the operations have ended.
void destroy_in_background(std::unique_ptr<Remains> remains) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
