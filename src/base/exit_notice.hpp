// SPDX-License-Identifier: Apache-2.0
/// How destructors that may wait for a device find out that the process exits.
#pragma once

#include "base/process.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// As release_mode(), but also notices that exit() has called the destructor, on whatever thread.
/// The library's own atexit handler comes too late for that: after the destructors of static
/// objects that were made after the library's first use. Looks at the stack, which takes
/// microseconds.
[[nodiscard]] Release release_mode_of_wait() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
