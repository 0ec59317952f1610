// SPDX-License-Identifier: Apache-2.0
/// A short pause in a polling loop.
#pragma once

#include <runnel/config.hpp>

#include <thread>

namespace runnel::inline RUNNEL_ABI::detail {

inline void relax() noexcept {
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#elif defined __aarch64__
  // Not `yield`, which most of these processors execute as a no-op. `isb` waits until the pipeline
  // is empty, about ten nanoseconds, as long as the pause above. Runtimes of other languages and
  // databases spin with it, too.
  asm volatile("isb" ::: "memory");
#else
  std::this_thread::yield();
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::detail
