// SPDX-License-Identifier: Apache-2.0
/// A short pause in a loop that polls.
#pragma once

#include <runnel/config.hpp>

#include <thread>

namespace runnel::inline RUNNEL_ABI::detail {

inline void relax() noexcept {
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#elif defined __aarch64__
  // Not `yield`, which most of these processors execute as no operation at all. This one waits
  // until the pipeline is empty, some ten nanoseconds, which is about what the pause above takes;
  // what spins in other languages' libraries and in databases has come to the same.
  asm volatile("isb" ::: "memory");
#else
  std::this_thread::yield();
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::detail
