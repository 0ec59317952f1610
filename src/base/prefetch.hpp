// SPDX-License-Identifier: Apache-2.0
/// Prefetches memory.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Prefetches a cache line that the calling thread will soon write, and that another thread wrote
/// last. The address need not be valid.
inline void prefetch_to_write(const void* address) noexcept {
#if defined __x86_64__
  // The builtin would fetch the line in shared state, so that the first write would have to wait
  // again. Processors without this instruction ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::detail
