// SPDX-License-Identifier: Apache-2.0
/// The calling thread's current device as runnel knows it, and the current streams that go with it.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The runtime's answer, which also becomes what `current_stream()` goes by. Inside a host function, where the runtime must not be
/// asked, and with a single device: what is known.
[[nodiscard]] int read_current_device(const char* operation);
/// For the runtime and for `current_stream()`. The device exists.
void change_current_device(int device, const char* operation);
/// The same on the way out of a scope, where no failure can be reported.
void restore_current_device(int device) noexcept;
/// In a forked child: the thread has neither a current device nor a current stream, and the next read refuses.
void forget_current_device() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
