// SPDX-License-Identifier: Apache-2.0
/// How many captures that were begun with the library are open. To wait for the device would break them, whichever thread waits.
#pragma once

#include "base/check.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

inline constinit sync::Atomic<std::size_t> captures_open[max_devices]{};
[[nodiscard]] inline bool are_captures_open(int device) noexcept { return captures_open[device].load(std::memory_order_relaxed) > 0; }
/// @throws errc::capture
inline void refuse_wait_in_capture(int device, const char* operation) {
  if (are_captures_open(device)) [[unlikely]]
    throw_error(errc::capture, operation, "a stream of the device is being captured, and the wait would break the capture");
}

}  // namespace runnel::inline RUNNEL_ABI::detail
