// SPDX-License-Identifier: Apache-2.0
/// How long the host waits for a stream or an event.
#pragma once

#include "base/polling.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <chrono>
#include <stop_token>

namespace runnel::inline RUNNEL_ABI::detail {

/// A deadline and a stop token. The wait ends with the first of the two.
struct WaitLimit {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::stop_token stop{};

  [[nodiscard]] bool is_reached() const {
    return stop.stop_requested() || sync::Clock::now() >= deadline;
  }
  /// Calls `done()` until it returns true, at least once. False if the limit was reached first.
  template <class F>
  [[nodiscard]] bool wait_until(F done) const {
    bool is_done = false;
    static_cast<void>(
        poll_until(deadline, [&] { return (is_done = done()) || stop.stop_requested(); }));
    return is_done;
  }
};

}  // namespace runnel::inline RUNNEL_ABI::detail
