// SPDX-License-Identifier: Apache-2.0
/// Bounded waits. No runtime offers one, so the library polls, with growing pauses.
#pragma once

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <algorithm>
#include <chrono>

namespace runnel::inline RUNNEL_ABI::detail {

/// Calls `done()` until it returns true or the deadline has passed: at least once, and once more at the deadline.
template <class F>
[[nodiscard]] bool poll_until(std::chrono::steady_clock::time_point deadline, F done) {
  using namespace std::chrono_literals;
  using clock = sync::Clock;
  for (int round = 0; round < 64; ++round) {  // work that is nearly complete should not cost a sleep
    if (done()) return true;
    if (clock::now() >= deadline) return false;
    sync::yield();
  }
  for (std::chrono::nanoseconds pause = 2us;; pause = std::min<std::chrono::nanoseconds>(pause * 2, 500us)) {
    if (done()) return true;
    const auto now = clock::now();
    if (now >= deadline) return false;
    sync::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline - now));
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
