// SPDX-License-Identifier: Apache-2.0
// Waits that Ctrl-C ends.
#pragma once

#include "errors.hpp"
#include "references.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

namespace binding {

/// Gives back the arrays of all copies that are complete.
struct Sweep {
  ~Sweep() { give_back(); }
};
/// What a question without a wait answers. Requires: the interpreter's lock.
template <class F>
[[nodiscard]] bool ask(F&& question) {
  const bool is_true = unlocked([&] {
    const Sweep sweep;
    return question();
  });
  drop_now();
  return is_true;
}

[[nodiscard]] inline std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>{seconds});
}

/// Calls `wait_some(time)`, which waits at most that long and tells whether it is done, without the
/// interpreter's lock, until it is, and looks at signals between. @throws TimeoutError after
/// `seconds`, and what a signal's handler raises
template <class F>
void wait_in_slices(std::optional<double> seconds, const char* what, F&& wait_some) {
  using clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds slice{20};
  drop_now();
  struct Last {
    ~Last() { drop_now(); }
  } const last;
  if (seconds && std::isnan(*seconds))
    refuse_value("timeout is a number of seconds, or None for no limit, not NaN");
  const bool is_bounded = seconds && *seconds < 1e9;  // more is no limit
  const clock::time_point end =
      is_bounded ? clock::now() + duration_of(std::max(*seconds, 0.0)) : clock::time_point::max();
  for (;;) {
    const clock::duration left = is_bounded ? end - clock::now() : clock::duration{slice};
    if (unlocked([&] {
          const Sweep sweep;
          return wait_some(std::clamp<clock::duration>(left, clock::duration{0}, slice));
        }))
      return;
    check_signals();
    if (left <= clock::duration{0}) raise_timeout(what);
  }
}

}  // namespace binding
