// SPDX-License-Identifier: Apache-2.0
/// Waits by polling, for conditions that wake no thread.
#pragma once

#include "base/relax.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <algorithm>
#include <chrono>

namespace runnel::inline RUNNEL_ABI::host {

/// About 0.2 microseconds without polling. Meanwhile another thread keeps the cache lines that it
/// writes.
inline void pause() noexcept {
  for (int i = 0; i < sync::polls(12); ++i) detail::relax();
}

/// Polls `done()` for a few microseconds, longer than a hand-over between threads takes on a quiet
/// machine. On a busy machine the scheduler prefers sleeping threads, so more polling or yielding
/// would lose time there. The pauses grow, since each poll takes the cache line from the writing
/// thread. Returns the last value of `done()`.
template <class F>
[[nodiscard]] bool spin_for(F done) noexcept {
  for (int spent = 0, pauses = 1; spent < sync::polls(100);
       spent += pauses, pauses = std::min(2 * pauses, 16)) {
    if (done()) return true;
    for (int i = 0; i < pauses; ++i) detail::relax();
  }
  return done();
}

/// Blocks the calling thread until `done()` returns true, or until `gives_up()` returns true after
/// a sleep. Polls as above, and then sleeps between the polls. The sleeps grow with the wait, up to
/// a millisecond. Returns the last value of `done()`.
template <class F, class G>
[[nodiscard]] bool poll_until(F done, G gives_up) {
  if (spin_for(done)) return true;
  constexpr std::chrono::microseconds longest{1000};
  for (std::chrono::microseconds sleep{5}; !done();
       sleep = std::min(sleep * 5 / 4 + std::chrono::microseconds{1}, longest)) {
    sync::sleep_for(sleep);
    if (gives_up()) return done();
  }
  return true;
}

}  // namespace runnel::inline RUNNEL_ABI::host
