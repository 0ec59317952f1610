// SPDX-License-Identifier: Apache-2.0
/// Values in memory, for the library's own waits.
#pragma once

#include <runnel/stream.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// As StreamRef::wait_value(), for a value behind which nobody writes pageable memory: the wait
/// does not delay the reading of sources.
void wait_for_own_value(StreamRef stream, const std::uint32_t* location, std::uint32_t value);

}  // namespace runnel::inline RUNNEL_ABI::detail
