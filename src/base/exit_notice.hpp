// SPDX-License-Identifier: Apache-2.0
/// How destructors that may block detect that the process is exiting.
#pragma once

#include "base/process.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// As release_mode(), but also detects that exit() is running this destructor, on any thread. The
/// library's own atexit handler runs too late to detect that: exit() destroys first the static
/// objects that were made after the library's first use. Walks the stack, which takes microseconds.
[[nodiscard]] Release release_mode_of_wait() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
