// SPDX-License-Identifier: Apache-2.0
/// The observers of the library's operations: the race checker (race_checker.hpp), a hook
/// (hooks.hpp), the trace (trace.hpp), and the report of long waits.
#pragma once

#include <runnel/detail/checking.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

// The bits of `observers`. While none is set, an operation costs one load more.
inline constexpr unsigned observer_checker = 1;
inline constexpr unsigned observer_hook = 2;
inline constexpr unsigned observer_trace = 4;
inline constexpr unsigned observer_hangs = 8;
static_assert(observer_checker == 1, "is_checking() says it as a number");

[[nodiscard]] inline bool has_observers(unsigned which) noexcept {
  return (observers.load(__ATOMIC_RELAXED) & which) != 0;
}
/// Whether there is any observer.
[[nodiscard]] inline bool is_observed() noexcept { return observers.load(__ATOMIC_RELAXED) != 0; }

inline void set_observer(unsigned which, bool on) noexcept {
  unsigned found = observers.load(__ATOMIC_RELAXED);
  while (!observers.compare_exchange_weak(found, on ? found | which : found & ~which,
                                          __ATOMIC_RELAXED)) {
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
