// SPDX-License-Identifier: Apache-2.0
/// Bounded waits. No runtime offers one, so the library polls, with growing pauses.
#pragma once

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <algorithm>
#include <chrono>

namespace runnel::inline RUNNEL_ABI::detail {

/// Calls `done()` until it returns true or the deadline has passed: at least once, and once more at
/// the deadline. Between the calls it first yields, 64 times and for at least `awake`, because work
/// that is nearly complete should not cost a sleep. Then it sleeps.
template <class F>
[[nodiscard]] bool poll_until(std::chrono::steady_clock::time_point deadline, F done,
                              std::chrono::nanoseconds awake = {}) {
  using namespace std::chrono_literals;
  using clock = sync::Clock;
  const auto asleep_from = clock::now() + awake;
  for (int round = 0; round < 64 || clock::now() < asleep_from; ++round) {
    if (done()) return true;
    if (clock::now() >= deadline) return false;
    sync::yield();
  }
  for (std::chrono::nanoseconds pause = 2us;;
       pause = std::min<std::chrono::nanoseconds>(pause * 2, 500us)) {
    if (done()) return true;
    const auto now = clock::now();
    if (now >= deadline) return false;
    sync::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline - now));
  }
}

/// The same with a duration. Returns nothing: the caller reads the result that `done()` stored.
template <class F>
void try_for(std::chrono::nanoseconds time, F done) {
  static_cast<void>(poll_until(sync::Clock::now() + time, done));
}

/// Blocks the calling thread until `done()` returns true.
template <class F>
void block_until(F done, std::chrono::nanoseconds awake = {}) {
  static_cast<void>(poll_until(sync::Clock::time_point::max(), done, awake));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
