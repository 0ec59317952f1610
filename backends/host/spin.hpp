// SPDX-License-Identifier: Apache-2.0
/// A short wait without sleeping.
#pragma once

#include "base/relax.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <algorithm>

namespace runnel::inline RUNNEL_ABI::host {

/// Polls `done()` for a few microseconds, which is longer than a hand-over between threads takes on a quiet machine. On a busy machine the
/// scheduler prefers a thread that sleeps, so that more polling, or yielding, would lose time there. The pauses grow, since each poll takes
/// the cache line from the thread that is to write it. Returns the last answer.
template <class F>
[[nodiscard]] bool spin_for(F done) noexcept {
  for (int spent = 0, pauses = 1; spent < sync::polls(100); spent += pauses, pauses = std::min(2 * pauses, 16)) {
    if (done()) return true;
    for (int i = 0; i < pauses; ++i) detail::relax();
  }
  return done();
}

}  // namespace runnel::inline RUNNEL_ABI::host
