// SPDX-License-Identifier: Apache-2.0
/// Asks for memory before it is used.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The calling thread will soon write here, where another thread has written last. The place need
/// not be valid memory.
inline void prefetch_to_write(const void* place) noexcept {
#if defined __x86_64__
  // The builtin asks for a copy of the cache line instead, so that the first write has to wait once
  // more. Processors without this instruction ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(place)));
#else
  __builtin_prefetch(place, 1);
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::detail
