// SPDX-License-Identifier: Apache-2.0
/// When a bounded wait ends.
#pragma once

#include <runnel/config.hpp>

#include <chrono>

namespace runnel::inline RUNNEL_ABI::detail {

/// now + timeout. A timeout that is negative or NaN counts as 0; one that ends within the clock's last hour, or later, never ends. The hour
/// is for the rounding of floating-point numbers, which could hide an overflow.
template <class Rep, class Period>
[[nodiscard]] std::chrono::steady_clock::time_point deadline_after(std::chrono::duration<Rep, Period> timeout) {
  using clock = std::chrono::steady_clock;
  const auto now = clock::now();
  const std::chrono::duration<double> seconds{timeout};
  if (!(seconds.count() > 0)) return now;
  const auto longest = clock::time_point::max() - now - std::chrono::hours{1};
  return seconds >= longest ? clock::time_point::max() : now + std::chrono::ceil<clock::duration>(timeout);
}

/// The same for a point in time of any clock, which is read now.
template <class Clock, class Duration>
[[nodiscard]] std::chrono::steady_clock::time_point deadline_at(std::chrono::time_point<Clock, Duration> time) {
  using Seconds = std::chrono::duration<double>;
  return deadline_after(Seconds{time.time_since_epoch()} - Seconds{Clock::now().time_since_epoch()});
}

}  // namespace runnel::inline RUNNEL_ABI::detail
