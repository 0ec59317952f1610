// SPDX-License-Identifier: Apache-2.0
/// Bounded waits: no runtime has one, so the question is asked again and again, ever more rarely.
#pragma once

#include <runnel/config.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace runnel::inline RUNNEL_ABI::detail {

/// Asks `done()` until it says true or the deadline has passed; asks at least once, and at the deadline once more.
template <class F>
[[nodiscard]] bool poll_until(std::chrono::steady_clock::time_point deadline, F done) {
  using namespace std::chrono_literals;
  using clock = std::chrono::steady_clock;
  for (int round = 0; round < 64; ++round) {  // what is nearly done should not pay for a sleep
    if (done()) return true;
    if (clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  for (std::chrono::nanoseconds pause = 2us;; pause = std::min<std::chrono::nanoseconds>(pause * 2, 500us)) {
    if (done()) return true;
    const auto now = clock::now();
    if (now >= deadline) return false;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline - now));
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
