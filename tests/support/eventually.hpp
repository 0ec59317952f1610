// SPDX-License-Identifier: Apache-2.0
/// Waiting for something that another thread does at a time of its own.
#pragma once

#include <chrono>
#include <thread>

namespace test_support {

/// Calls `holds` until it returns true. Returns false if that takes longer than `limit`. Between
/// the calls the thread sleeps for `pause`; without a pause it only yields.
template <class Predicate>
[[nodiscard]] bool eventually(std::chrono::seconds limit, Predicate&& holds,
                              std::chrono::microseconds pause = {}) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (pause.count() > 0)
      std::this_thread::sleep_for(pause);
    else
      std::this_thread::yield();
  }
  return true;
}

}  // namespace test_support
