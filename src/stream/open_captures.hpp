// SPDX-License-Identifier: Apache-2.0
/// The open captures that were begun through the library. Waiting for a device that takes part in
/// one would break it, on any thread.
#pragma once

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "device/capture_rules.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether a stream of the device takes part in an open capture. Misses streams that the library
/// does not own and that joined a capture of another device.
[[nodiscard]] bool takes_part_in_open_capture(int device) noexcept;
[[nodiscard]] inline bool takes_part_in_capture(int device) noexcept {
  return are_captures_open() && takes_part_in_open_capture(device);
}
/// @throws errc::capture
inline void refuse_wait_in_capture(int device, const char* operation) {
  if (takes_part_in_capture(device)) [[unlikely]]
    throw_error(errc::capture, operation, capture_rule(CaptureCase::wait_for_device).reason);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
