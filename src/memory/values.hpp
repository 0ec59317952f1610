// SPDX-License-Identifier: Apache-2.0
/// Values in memory, for the library's own waits.
#pragma once

#include <runnel/stream.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// As StreamRef::wait_value(), but copies do not count the wait as a writer of host memory.
/// Requires: the code that stores the value writes no pageable memory that a later copy reads.
void wait_for_own_value(StreamRef stream, const uint32_t* location, uint32_t value);

}  // namespace runnel::inline RUNNEL_ABI::detail
