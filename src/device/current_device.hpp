// SPDX-License-Identifier: Apache-2.0
/// The library's copy of the calling thread's current device, and the current stream of each
/// device.
#pragma once

#include <runnel/current.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Queries the runtime, and stores the device for `current_stream()`. Inside a host function, where
/// the runtime must not be called, and with a single device, it returns the stored device.
int read_current_device(const char* operation);
/// Sets the device in the runtime and for `current_stream()`. Requires: the device exists.
void change_current_device(int device, const char* operation);
/// The same at the end of a scope, where no failure can be reported.
void restore_current_device(int device) noexcept;
/// Resets the thread to no current device, no current stream and the usual pageable policy, as when
/// it began. The runtime's device stays.
void reset_thread_settings() noexcept;
/// The device that `current` belongs to; -1 until the thread's first call.
extern thread_local constinit int cached_device;

/// @{ Requires: the device is not cached_device.
CurrentStream stream_set_on_another(int device) noexcept;
void set_stream_on_another(int device, CurrentStream stream) noexcept;
/// @} The thread's stream for a device, whether that device is current or not. Empty if it has set
/// none.
inline CurrentStream stream_set_on(int device) noexcept {
  return device == cached_device ? current : stream_set_on_another(device);
}
/// Sets that stream. Without memory for the table, the device falls back to its default stream.
inline void set_stream_on(int device, CurrentStream stream) noexcept {
  if (device == cached_device)
    current = stream;
  else
    set_stream_on_another(device, stream);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
