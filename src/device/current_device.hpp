// SPDX-License-Identifier: Apache-2.0
/// The calling thread's current device as runnel knows it, and the current streams that go with it.
#pragma once

#include <runnel/current.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The runtime's answer, which also becomes what `current_stream()` goes by. Inside a host function, where the runtime must not be
/// asked, and with a single device: what is known.
[[nodiscard]] int read_current_device(const char* operation);
/// For the runtime and for `current_stream()`. The device exists.
void change_current_device(int device, const char* operation);
/// The same on the way out of a scope, where no failure can be reported.
void restore_current_device(int device) noexcept;
/// The device whose stream `current` is; -1: the thread has not asked yet.
extern thread_local constinit int noted_device;

/// The stream that the thread has set for a device, current or not; empty if it has set none.
[[nodiscard]] CurrentStream stream_set_on(int device) noexcept;
/// Sets it. Where there is no memory for the table of streams, the device falls back to its default stream.
void set_stream_on(int device, CurrentStream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
