// SPDX-License-Identifier: Apache-2.0
/// Times at which streams reach a point, on the host's clock, for the trace.
#pragma once

#include "base/sync.hpp"
#include "timeline/event_node.hpp"

#include <runnel/hooks.hpp>

#include <chrono>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// Microseconds since the first call.
double trace_now() noexcept;

/// A position of a stream: its time, or an event, or neither if the time will never be known.
struct TracePoint {
  double time = -1;
  EventRef event{};
};

/// The time at which the present work of the stream is complete. For an idle stream that is now. An
/// event is recorded only on a busy stream: it would make an idle stream busy, and copies choose
/// their route by that. Requires: the stream's device is current if its handle needs that.
[[nodiscard]] TracePoint trace_point(const Operation& operation) noexcept;

/// An event and its time on the host's clock. `happen()` records an event on an idle stream, and
/// waits for it; the event lies between two readings of the clock. On a busy machine these may be
/// far apart, so the closest pair of up to 20 attempts is used. Empty if `happen()` returns an
/// empty event.
template <class Happen>
[[nodiscard]] auto match_clocks(Happen happen) {
  constexpr std::chrono::microseconds close_enough{30};
  std::pair<decltype(happen()), sync::Clock::time_point> best;
  auto closest = sync::Clock::duration::max();
  for (int attempt = 0; attempt < 20 && closest > close_enough; ++attempt) {
    const auto before = sync::Clock::now();
    auto event = happen();
    const auto apart = sync::Clock::now() - before;
    if (!event) break;
    if (apart >= closest) continue;
    closest = apart;
    best = {std::move(event), before + apart / 2};
  }
  return best;
}

enum class PointState : unsigned char { known, pending, unknown };
/// Reads the time of the event if it is complete, and returns the event to the pool.
PointState resolve(TracePoint& point) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
