// SPDX-License-Identifier: Apache-2.0
/// When a stream was where, in the time of the host, for the trace.
#pragma once

#include "base/sync.hpp"
#include "stream/event_node.hpp"

#include <runnel/hooks.hpp>

#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// Microseconds since the first call.
[[nodiscard]] double trace_now() noexcept;

/// A moment of a stream: a known one, or an event that marks it, or neither if it will never be
/// known.
struct TracePoint {
  double time = -1;
  EventRef event{};
};

/// The moment at which the work submitted to the stream so far is complete. If nothing is left to
/// do that is now; only otherwise an event is recorded, because one on an idle stream would make it
/// busy, and copies choose their route by that. Requires: the stream's device is current if its
/// handle needs that.
[[nodiscard]] TracePoint trace_point(const HookEvent& event) noexcept;

/// An event and its time on the host's clock: `happen()` records one where nothing else is to be
/// done, and waits for it. It lies between two readings of the clock. On a busy machine these may
/// be far apart, so the closest pair of up to 20 attempts counts. Empty if the first event is.
template <class Happen>
[[nodiscard]] auto match_clocks(sync::Clock::duration close_enough, Happen happen) {
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

enum class PointState : unsigned char { known, not_yet, lost };
/// Asks for the time of the event, and gives it back to the pool.
[[nodiscard]] PointState resolve(TracePoint& point) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
