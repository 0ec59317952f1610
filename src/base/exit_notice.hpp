// SPDX-License-Identifier: Apache-2.0
/// How destructors that may wait for a device find out that the process exits.
#pragma once

#include "base/process.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// As release_mode(), but notices also that exit() has called the destructor on another thread than the main one: nothing else tells before
/// the destructors of objects that became static after the library's first use. Looks at the stack, which takes microseconds.
[[nodiscard]] Release release_mode_of_wait() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
