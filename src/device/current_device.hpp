// SPDX-License-Identifier: Apache-2.0
/// The calling thread's current device as runnel knows it, and the current streams that go with it.
#pragma once

#include <runnel/current.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Asks the runtime, and notes the answer for `current_stream()`. Inside a host function, where the runtime must not be asked, and with a
/// single device, the answer is the noted device.
[[nodiscard]] int read_current_device(const char* operation);
/// Changes it for the runtime and for `current_stream()`. Requires: the device exists.
void change_current_device(int device, const char* operation);
/// The same on the way out of a scope, where no failure can be reported.
void restore_current_device(int device) noexcept;
/// The device that `current` belongs to; -1 until the thread's first question.
extern thread_local constinit int noted_device;

/// The stream that the thread has set for a device, whether current or not; empty if it has set none.
[[nodiscard]] CurrentStream stream_set_on(int device) noexcept;
/// Sets that stream. Without memory for the table of streams, the device falls back to its default stream.
void set_stream_on(int device, CurrentStream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
