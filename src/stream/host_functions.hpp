// SPDX-License-Identifier: Apache-2.0
/// How the library's own sources treat host functions.
#pragma once

#include <runnel/config.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// A mark that goes with each function the thread launches and each copy it stages, so that an exception can be assigned; 0 at first.
extern thread_local constinit std::uint64_t host_function_label;

/// Destroys the functions that wait in the streams of a device. Requires: the device is lost.
void discard_host_functions(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
