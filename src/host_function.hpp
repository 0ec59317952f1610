// SPDX-License-Identifier: Apache-2.0
/// Host functions that will not be called any more.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Destroys the functions that wait in streams of a device that is lost.
void discard_host_functions(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
