// SPDX-License-Identifier: Apache-2.0
/// When a stream was where, in the time of the host, for the trace.
#pragma once

#include "stream/event_node.hpp"

#include <runnel/hooks.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// Microseconds since the first call.
[[nodiscard]] double trace_now() noexcept;

/// A moment of a stream: a known one, or an event that marks it, or neither if it will never be known.
struct TracePoint {
  double time = -1;
  EventRef event{};
};

/// The moment at which the work submitted to the stream so far is complete. If nothing is left to do that is now; only otherwise an event
/// is recorded, because one on an idle stream would make it busy, and copies choose their route by that. Requires: the stream's device is
/// current if its handle needs that.
[[nodiscard]] TracePoint trace_point(const HookEvent& event) noexcept;

enum class PointState : unsigned char { known, not_yet, lost };
/// Asks for the time of the event, and gives it back to the pool.
[[nodiscard]] PointState resolve(TracePoint& point) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
