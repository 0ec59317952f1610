// SPDX-License-Identifier: Apache-2.0
/// Shared by the functions of the host backend: its status numbers, its devices, and the objects
/// behind its native handles.
#pragma once

#include "engine.hpp"
#include "task_queue.hpp"

#include "base/max_devices.hpp"
#include "base/sync.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <set>

namespace runnel::inline RUNNEL_ABI {

namespace host {
struct Capture;
}

/// A stream: a queue of tasks, and how it orders with its device's default stream.
struct native::host_stream {
  /// @throws std::bad_alloc, also if no thread can be created to run it
  host_stream(int on_device, int priority, bool is_blocking, bool default_of_its_device = false);
  host_stream(const host_stream&) = delete;
  host_stream& operator=(const host_stream&) = delete;

  const host::TaskQueuePtr queue;
  const int device;
  const bool blocking;
  const bool is_default;

  // Guarded by the device's lock.
  // this stream's next work waits for the default stream's task of this number
  std::uint64_t behind_default = 0;
  // the default stream's next work waits for this stream's task of this number
  std::uint64_t joined = 0;

  // Guarded by the lock of all captures (capture.cpp), which changes `captured` with them.
  std::shared_ptr<host::Capture> capture;  // that the stream takes part in, or null
  std::size_t chain = 0;                   // the stream's in the capture
  sync::Atomic<bool> captured{false};

  [[nodiscard]] bool is_captured() const noexcept {
    return captured.load(std::memory_order_acquire);
  }
};

namespace host {

/// The host backend's status is the portable code itself. For a capture's sake it also says why, in
/// the hundreds.
[[nodiscard]] constexpr backend::status status_of(errc code) noexcept {
  return static_cast<backend::status>(code);
}
inline constexpr backend::status fault_unit = 100;
static_assert(static_cast<int>(errc::unknown) < fault_unit);
[[nodiscard]] constexpr backend::status status_of(backend::CaptureFault fault) noexcept {
  return status_of(errc::capture) + fault_unit * static_cast<backend::status>(fault);
}
inline constexpr backend::status invalid_argument = status_of(errc::invalid_argument);

/// Returns what `body` returns, or "out of memory" if it throws std::bad_alloc.
template <class F>
[[nodiscard]] backend::status catch_bad_alloc(F body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return status_of(errc::out_of_memory);
  }
}

struct HostDevice {
  // guards the sets, and the order of submissions to the default stream and to blocking streams
  sync::Mutex mutex;
  std::set<native::host_stream*> streams;
  // destroyed, but with work left: the default stream waits for that, too
  std::set<native::host_stream*> leaving;
  // created at first use by host::resolve, without the lock
  sync::Atomic<native::host_stream*> default_stream{nullptr};
  sync::Atomic<std::size_t> allocated{0};  // bytes of device memory in use

  /// Calls `f(stream)` for each stream that has work or may get some. Requires: the lock is held.
  template <class F>
  void for_each_stream(F f) {
    for (const auto* const set : {&streams, &leaving})
      for (native::host_stream* const stream : *set) f(*stream);
  }
  /// Requires: the lock is held.
  template <class F>
  [[nodiscard]] bool has_stream(F is_wanted) const {
    return std::any_of(streams.begin(), streams.end(), is_wanted) ||
           std::any_of(leaving.begin(), leaving.end(), is_wanted);
  }
};

/// How many devices are shown: RUNNEL_HOST_DEVICES, at most `max_devices`; 1 if it is not set.
[[nodiscard]] int shown_devices() noexcept;
/// Bytes of memory of each device: RUNNEL_HOST_MEMORY, or the machine's memory.
[[nodiscard]] std::size_t memory_of_device() noexcept;
[[nodiscard]] HostDevice& device_at(int ordinal);
/// The calling thread's current device.
[[nodiscard]] int current_device() noexcept;

/// The stream that a handle means. The meaning of the null handle and the per-thread handle depends
/// on the calling thread and its device.
[[nodiscard]] native::host_stream& resolve(native::stream handle);
/// Whether the handle means a stream that is not destroyed. It may be any number.
[[nodiscard]] bool is_living(native::stream handle);
/// Submits work in the order that default and blocking streams promise. `work` is moved into the
/// task.
template <class F>
std::uint64_t submit_in_order(native::host_stream& stream, F work);
/// Ends the stream at once; its work is still completed.
void destroy(native::host_stream* stream) noexcept;
/// A wait for all that the stream's next work would come after: what events record and other
/// streams wait for.
[[nodiscard]] Wait end_of(native::host_stream& stream);
/// True if the stream's work is complete, and for the default stream the work of the blocking
/// streams, too.
[[nodiscard]] bool has_finished(native::host_stream& stream);

/// If the stream orders with the default stream, enqueues the waits for that order, and holds the
/// device's lock as long as it lives.
class OrderedSubmission {
 public:
  explicit OrderedSubmission(native::host_stream& stream);

 private:
  std::unique_lock<sync::Mutex> lock_;
};

template <class F>
std::uint64_t submit_in_order(native::host_stream& stream, F work) {
  stream.queue->wait_for_room();
  const OrderedSubmission in_order{stream};
  return stream.queue->submit(std::move(work));
}

}  // namespace host
}  // namespace runnel::inline RUNNEL_ABI
