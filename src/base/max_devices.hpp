// SPDX-License-Identifier: Apache-2.0
/// How many devices a process sees.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Further devices are not shown, of any backend; the vendors' runtimes show 64 at most.
inline constexpr int max_devices = 64;

}  // namespace runnel::inline RUNNEL_ABI::detail
