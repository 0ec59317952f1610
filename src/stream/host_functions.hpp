// SPDX-License-Identifier: Apache-2.0
/// What the library's own sources do with host functions.
#pragma once

#include <runnel/config.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// Goes with each function that the thread launches and each copy that it has staged, to tell whose exception it was; 0 at first.
extern thread_local constinit std::uint64_t host_function_label;

/// Destroys the functions that wait in streams of a device that is lost.
void discard_host_functions(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
