// SPDX-License-Identifier: Apache-2.0
/// Deadlines of bounded waits.
#pragma once

#include <runnel/config.hpp>

#include <chrono>

namespace runnel::inline RUNNEL_ABI::detail {

/// now + timeout. A negative or NaN timeout is treated as 0. A deadline in the last hour of the
/// clock's range is replaced by the maximum, because rounding could hide an overflow there.
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

/// The same for a point in time of any clock. The clock is read once, by this call.
template <class Clock, class Duration>
[[nodiscard]] std::chrono::steady_clock::time_point deadline_at(
    std::chrono::time_point<Clock, Duration> time) {
  return deadline_after(std::chrono::duration<double>{time.time_since_epoch()} -
                        Clock::now().time_since_epoch());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
