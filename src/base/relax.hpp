// SPDX-License-Identifier: Apache-2.0
/// A short pause in a loop that polls.
#pragma once

#include <runnel/config.hpp>

#include <thread>

namespace runnel::inline RUNNEL_ABI::detail {

inline void relax() noexcept {
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::detail
