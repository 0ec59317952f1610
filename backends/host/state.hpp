// SPDX-License-Identifier: Apache-2.0
/// What the host backend's functions share: its status numbers, its devices, and what stands behind its native handles.
#pragma once

#include "engine.hpp"

#include <runnel/detail/backend.hpp>

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <new>

namespace runnel::inline RUNNEL_ABI {

/// A stream: a lane, and how it orders with its device's default stream.
struct native::host_stream {
  /// @throws std::bad_alloc, also if no thread can be had to run it
  host_stream(int on_device, int priority, bool is_blocking, bool default_of_its_device = false);
  host_stream(const host_stream&) = delete;
  host_stream& operator=(const host_stream&) = delete;

  const host::LanePtr lane;
  const int device;
  const bool blocking;
  const bool is_default;

  // Guarded by the device's lock.
  std::list<host_stream*>::iterator place;  // in one of the device's lists
  std::uint64_t behind_default = 0;         // this stream's next work is behind the default stream's task of this number
  std::uint64_t joined = 0;                 // the default stream's next work is behind this stream's task of this number
};

namespace host {

/// The host backend's status is the portable code itself.
[[nodiscard]] constexpr backend::status status_of(errc code) noexcept { return static_cast<backend::status>(code); }
inline constexpr backend::status invalid_argument = status_of(errc::invalid_argument);

/// Runs `body`, which may run out of memory, for a function that must not throw.
template <class F>
[[nodiscard]] backend::status guarded(F body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return status_of(errc::out_of_memory);
  }
}

struct HostDevice {
  std::mutex mutex;  // guards the lists, and the order of submissions to the default stream and to blocking streams
  std::list<native::host_stream*> streams;
  std::list<native::host_stream*> leaving;                    // destroyed, but with work left: the default stream waits for that too
  std::atomic<native::host_stream*> default_stream{nullptr};  // made at first use, without the lock: host::resolve gives it
  std::atomic<std::size_t> allocated{0};                      // bytes of device memory in use
};

/// How many devices are shown: RUNNEL_HOST_DEVICES, 16 at most; 1 if it is not set.
[[nodiscard]] int shown_devices() noexcept;
/// Bytes of memory of each: RUNNEL_HOST_MEMORY, or the machine's.
[[nodiscard]] std::size_t memory_of_device() noexcept;
[[nodiscard]] HostDevice& device_at(int ordinal);
/// The calling thread's current device.
[[nodiscard]] int current_device() noexcept;

/// The stream that a handle means: the null stream and the per-thread handle depend on thread and device.
[[nodiscard]] native::host_stream& resolve(native::stream handle);
/// Submits in the order that default and blocking streams promise. `work` is moved into the task.
template <class F>
std::uint64_t submit_in_order(native::stream handle, F work);
/// Ends the stream at once; its work is still done.
void destroy(native::host_stream* stream) noexcept;
/// The number that stands for all that the stream's next work would wait for, as events and waiting streams see it.
[[nodiscard]] std::uint64_t last_submitted(native::host_stream& stream);
/// True if the stream has finished, and for the default stream the blocking streams too.
[[nodiscard]] bool has_finished(native::host_stream& stream);

/// Holds the device's lock where the stream orders with the default stream, and has enqueued the waits for that order.
class OrderedSubmission {
 public:
  explicit OrderedSubmission(native::host_stream& stream);

 private:
  std::unique_lock<std::mutex> lock_;
};

template <class F>
std::uint64_t submit_in_order(native::stream handle, F work) {
  native::host_stream& stream = resolve(handle);
  stream.lane->wait_for_room();
  const OrderedSubmission in_order{stream};
  return stream.lane->submit(std::move(work));
}

}  // namespace host
}  // namespace runnel::inline RUNNEL_ABI
