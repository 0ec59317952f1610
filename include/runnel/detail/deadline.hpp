// SPDX-License-Identifier: Apache-2.0
/// When a bounded wait ends.
#pragma once

#include <runnel/config.hpp>

#include <chrono>

namespace runnel::inline RUNNEL_ABI::detail {

/// now + timeout. Negative or NaN counts as 0. What would end in the clock's last hour never ends:
/// rounding could hide an overflow there.
template <class Rep, class Period>
[[nodiscard]] std::chrono::steady_clock::time_point deadline_after(
    std::chrono::duration<Rep, Period> timeout) {
  using clock = std::chrono::steady_clock;
  const auto now = clock::now();
  const std::chrono::duration<double> seconds{timeout};
  if (!(seconds.count() > 0)) return now;
  const auto longest = clock::time_point::max() - now - std::chrono::hours{1};
  return seconds >= longest ? clock::time_point::max()
                            : now + std::chrono::ceil<clock::duration>(timeout);
}

/// The same for a point in time of any clock, which is read now.
template <class Clock, class Duration>
[[nodiscard]] std::chrono::steady_clock::time_point deadline_at(
    std::chrono::time_point<Clock, Duration> time) {
  return deadline_after(std::chrono::duration<double>{time.time_since_epoch()} -
                        Clock::now().time_since_epoch());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
