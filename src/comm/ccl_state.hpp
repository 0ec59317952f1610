// SPDX-License-Identifier: Apache-2.0
/// A communicator over a library of collective operations on devices.
#pragma once

#include "ccl.hpp"
#include "comm/serial_order.hpp"
#include "comm/state.hpp"

#include <runnel/communicator.hpp>
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

/// The resources of a communicator. They outlive it until its operations have ended.
struct CclResources {
  CclResources(Device device, std::shared_ptr<SerialOrder> own_order);

  const Stream stream;            // For operations of the communicator itself.
  DeviceBuffer<uint32_t> number;  // The element that a barrier reduces.
  const std::shared_ptr<SerialOrder> own_order;
  SerialOrder& order;
  ccl::Handle communicator = nullptr;
};

struct AbortCommunicator {
  void operator()(ccl::Handle communicator) const noexcept {
    static_cast<void>(ccl::abort(communicator));
  }
};
/// The library's communicator, before a CclState owns it. It has no operations.
using NewCommunicator = std::unique_ptr<void, AbortCommunicator>;

struct CclState final : CommunicatorState {
  /// Takes ownership of `made`, the library's communicator, unless it throws.
  CclState(const CommunicatorOptions& given, Device of, ccl::Handle made, int own_rank, int ranks);
  ~CclState() override;

  void enqueue(StreamRef stream, std::span<const Exchange> steps) override;
  [[nodiscard]] std::shared_ptr<CommunicatorState> split(int color, int key) override;
  void end_operations() noexcept override;
  void look_for_errors() override;

  [[nodiscard]] std::shared_ptr<CclState> self() {
    return std::static_pointer_cast<CclState>(shared_from_this());
  }
  SerialOrder& order() const noexcept { return resources_->order; }
  /// Records that the stream uses the communicator: if the communicator breaks, the next
  /// synchronize() of the stream throws the reason.
  void record_stream(StreamRef stream);
  /// Calls the library for the steps. Requires: the caller holds `calls`, and the communicator's
  /// device is current.
  [[nodiscard]] ccl::status post(StreamRef stream, std::span<const Exchange> steps) const noexcept;
  /// If `status` is an error, breaks the communicator. @throws the reason then
  void check_call(ccl::status status, const char* operation);
  /// If `status` is an error, breaks the communicator, because other ranks may wait for this one.
  void break_if_failed(ccl::status status, const char* operation) noexcept;
  ///@{ An operation of all ranks, in which the library connects them.
  [[nodiscard]] ccl::status post_connection() const noexcept;
  /// `all`: the ranks of this process. An error of one of them blocks the others, too.
  void wait_for_connection(std::span<const std::shared_ptr<CclState>> all);
  ///@}

  const Device device;
  // Locked during calls of the library with the communicator. An abort ends a call that does not
  // return; it waits only briefly for this lock.
  sync::Mutex calls;

 private:
  void notify_streams(const std::exception_ptr& reason) noexcept override;
  template <class T>
  [[nodiscard]] std::vector<T> gather(const T& own);

  std::unique_ptr<CclResources> resources_;
  sync::Mutex uses_lock_;
  std::vector<StreamRef> uses_;
};

/// Operations of several communicators that are enqueued as one unit.
struct Together::Operations {
  /// Those of the calling thread's together(); null if it is not in one.
  static thread_local constinit Operations* of_this_thread;

  struct Item {
    std::shared_ptr<CclState> state;
    StreamRef stream;
    std::vector<Exchange> steps;
    bool is_captured = false;  // Into a graph.
  };
  std::vector<Item> items;
};

/// @throws errc::not_supported for a reduction that the library does not support
void require_supported(const Exchange& step);

/// Makes the calls `post(0)` to `post(count - 1)` as one group. None follows a call that fails.
template <class F>
[[nodiscard]] ccl::status in_group(size_t count, F post) noexcept {
  if (const ccl::status begin = ccl::group_start(); begin != ccl::ok) return begin;
  ccl::status status = ccl::ok;
  for (size_t i = 0; i < count && status == ccl::ok; ++i) status = post(i);
  const ccl::status end = ccl::group_end();
  return status != ccl::ok ? status : end;
}

/// An operation with a timeout.
struct WatchedOperation {
  std::shared_ptr<CclState> state;
  const char* operation;
  Event begin{}, end{};
  std::optional<sync::Clock::time_point>
      since{};  // When it was found that the stream had reached the operation.
};
/// One operation, or none. It is a list, so that passing it on allocates nothing.
using Watch = std::list<WatchedOperation>;
/// To be called before an operation: if the communicator has a timeout, records the begin of the
/// operation.
[[nodiscard]] Watch begin_watch(CclState& state, StreamRef stream, const char* operation);
/// To be called after the operation. From then on a thread watches the operation. If it throws, the
/// communicator is broken.
void end_watch(Watch watch, StreamRef stream);

/// Adds it to all communicators of the process. An abort of one would wait for the operations of
/// the others.
void register_state(const std::shared_ptr<CclState>& state);
/// Breaks the communicator, and aborts all communicators of the process.
void fail_all(CclState& state, errc code, const char* operation, const char* reason,
              const char* more = "") noexcept;
/// Aborts broken communicators on a thread of its own, because the call may hang. If no thread can
/// be started, uses the calling thread.
void abort_in_background(std::span<const std::shared_ptr<CclState>> broken) noexcept;
/// Calls `make()` on a thread of its own, because the call may hang. Returns nothing if it takes
/// longer than the timeout; a communicator that is created later is aborted. @throws what `make()`
/// throws
[[nodiscard]] std::optional<NewCommunicator> make_within(
    std::chrono::milliseconds timeout, std::packaged_task<NewCommunicator()> make);
/// Destroys the library's communicator once its operations have ended, on a thread of its own,
/// because the call may hang. The communicator is leaked if no thread can be started, or if the
/// runtime cannot report whether the operations have ended.
void destroy_in_background(std::unique_ptr<CclResources> resources) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
