// SPDX-License-Identifier: Apache-2.0
/// Shared by the functions of the host backend: status numbers, devices, and the objects behind the
/// native handles.
#pragma once

#include "backend.hpp"
#include "engine.hpp"
#include "task_queue.hpp"

#include "base/max_devices.hpp"
#include "base/sync.hpp"

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

/// A stream: a queue of tasks, and its order with the device's default stream.
struct native::host_stream {
  /// @throws std::bad_alloc, also if no thread can be created to run it
  host_stream(int on_device, int priority, bool is_blocking, bool default_of_its_device = false);
  host_stream(const host_stream&) = delete;
  host_stream& operator=(const host_stream&) = delete;

  const host::TaskQueuePtr queue;
  const int device;
  const bool blocking;
  const bool is_default;

  // Protected by the device's lock.
  // This stream's next work waits for the default stream's task with this number.
  std::uint64_t awaited_default = 0;
  // The default stream's next work waits for this stream's task with this number.
  std::uint64_t joined = 0;

  // Protected by the lock of all captures (capture.cpp), which also changes `captured`.
  std::shared_ptr<host::Capture> capture;  // the stream's capture, or null
  std::size_t chain = 0;                   // the stream's chain in the capture
  sync::Atomic<bool> captured{false};

  [[nodiscard]] bool is_captured() const noexcept {
    return captured.load(std::memory_order_acquire);
  }
};

namespace host {

/// The host backend's status is the portable code. For captures the hundreds add the reason.
[[nodiscard]] constexpr backend::status status_of(errc code) noexcept {
  return static_cast<backend::status>(code);
}
inline constexpr backend::status fault_unit = 100;
static_assert(static_cast<int>(errc::unknown) < fault_unit);
[[nodiscard]] constexpr backend::status status_of(backend::CaptureFault fault) noexcept {
  return status_of(errc::capture) + fault_unit * static_cast<backend::status>(fault);
}
inline constexpr backend::status invalid_argument = status_of(errc::invalid_argument);

/// Returns the result of `body`, or "out of memory" if it throws std::bad_alloc.
template <class F>
[[nodiscard]] backend::status catch_bad_alloc(F body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return status_of(errc::out_of_memory);
  }
}

struct HostDevice {
  // Protects the sets, and the order of submissions to the default stream and to blocking streams.
  sync::Mutex mutex;
  std::set<native::host_stream*> streams;
  // Destroyed streams with unfinished work: the default stream waits for them, too.
  std::set<native::host_stream*> leaving;
  // Created at first use by host::resolve, without the lock.
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

/// The number of visible devices: RUNNEL_HOST_DEVICES, at most `max_devices`; 1 if it is not set.
[[nodiscard]] int visible_devices() noexcept;
/// The memory of each device in bytes: RUNNEL_HOST_MEMORY, or the machine's memory.
[[nodiscard]] std::size_t memory_of_device() noexcept;
[[nodiscard]] HostDevice& device_at(int ordinal);
/// The calling thread's current device.
[[nodiscard]] int current_device() noexcept;

/// The stream of a handle. The null handle and the per-thread handle depend on the calling thread
/// and its device.
[[nodiscard]] native::host_stream& resolve(native::stream handle);
/// Whether the handle is that of a stream which is not destroyed. It may be any number.
[[nodiscard]] bool is_living(native::stream handle);
/// Submits work in the order of default and blocking streams. `work` is moved into the task.
template <class F>
std::uint64_t submit_in_order(native::host_stream& stream, F work);
/// Destroys the stream at once; its work still completes.
void destroy(native::host_stream* stream) noexcept;
/// A wait for all work that precedes the stream's next work. Events record it, and other streams
/// wait for it.
[[nodiscard]] Wait end_of(native::host_stream& stream);
/// Whether the stream's work is complete; for the default stream also the work of the blocking
/// streams.
[[nodiscard]] bool has_finished(native::host_stream& stream);

/// If the stream orders with the default stream, enqueues the waits for that order, and holds the
/// device's lock in this scope.
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
