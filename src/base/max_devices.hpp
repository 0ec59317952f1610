// SPDX-License-Identifier: Apache-2.0
/// The largest number of devices of a process.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Devices above this number are ignored, on each backend. The vendors' runtimes report at most 64.
inline constexpr int max_devices = 64;

}  // namespace runnel::inline RUNNEL_ABI::detail
