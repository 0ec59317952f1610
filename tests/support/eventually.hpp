// SPDX-License-Identifier: Apache-2.0
/// Waiting for something that another thread does at a time of its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace test_support {

/// Between two looks at what another thread does: yields at first, then sleeps, at most for half a
/// millisecond, so that tests which wait leave the processor to those that compute.
class Pauses {
 public:
  void operator()() {
    if (++rounds_ <= yields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds{std::min(rounds_, 500)});
  }

 private:
  static constexpr int yields = 30;
  int rounds_ = 0;
};

/// Calls `holds` until it returns true. Returns false if that takes longer than `limit`.
template <class Predicate>
[[nodiscard]] bool eventually(std::chrono::nanoseconds limit, Predicate&& holds) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (Pauses pause; !holds(); pause())
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

}  // namespace test_support
