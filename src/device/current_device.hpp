// SPDX-License-Identifier: Apache-2.0
/// The calling thread's current device as runnel knows it, and the current streams that go with it.
#pragma once

#include <runnel/current.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Asks the runtime, and notes the answer for `current_stream()`. Inside a host function, where the
/// runtime must not be asked, and with a single device, the answer is the noted device.
[[nodiscard]] int read_current_device(const char* operation);
/// Changes it for the runtime and for `current_stream()`. Requires: the device exists.
void change_current_device(int device, const char* operation);
/// The same on the way out of a scope, where no failure can be reported.
void restore_current_device(int device) noexcept;
/// From now on the thread has set neither a current device nor a current stream, as when it began.
/// The runtime's device stays.
void reset_current_device() noexcept;
/// The same, and the policy for pageable memory is that of a new thread, too: nothing stays of what
/// the program has set here.
void reset_thread_settings() noexcept;
/// The device that `current` belongs to; -1 until the thread's first question.
extern thread_local constinit int noted_device;

///@{ For a device that is not the noted one.
[[nodiscard]] CurrentStream stream_set_on_another(int device) noexcept;
void set_stream_on_another(int device, CurrentStream stream) noexcept;
/// @} The stream that the thread has set for a device, whether current or not; empty if it has set
/// none.
[[nodiscard]] inline CurrentStream stream_set_on(int device) noexcept {
  return device == noted_device ? current : stream_set_on_another(device);
}
/// Sets that stream. Without memory for the table of streams, the device falls back to its default
/// stream.
inline void set_stream_on(int device, CurrentStream stream) noexcept {
  if (device == noted_device)
    current = stream;
  else
    set_stream_on_another(device, stream);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
