// SPDX-License-Identifier: Apache-2.0
/// Waits for devices on behalf of the library.
#pragma once

#include "timeline/timeline.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Blocks until the device is idle. Tries a second time after a failure, since an error of earlier
/// work may be reported only once. Returns `complete`, or `unknown` at once if the wait would break
/// a capture, or `lost`. The work of the device's streams so far is known to be complete then, or
/// that it will never be.
[[nodiscard]] Progress wait_for_device(int device) noexcept;
/// Lets a thread do the same once the wait breaks no capture. Does nothing if the system has no
/// thread.
void request_device_wait(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
