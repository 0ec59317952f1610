// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_completion
/// Waits that a `std::stop_token` ends.
#pragma once

#include <runnel/event.hpp>

#include <stop_token>

namespace runnel::inline RUNNEL_ABI {

/// As `stream.synchronize()`, but the wait ends once a stop is requested; returns false then,
/// unless the work is complete. The wait ends within about a millisecond of the request; the work
/// itself continues. @throws as StreamRef::synchronize()
[[nodiscard]] bool synchronize(StreamRef stream, const std::stop_token& stop);
/// The same for an Event or a TimedEvent. @throws as its synchronize()
[[nodiscard]] bool synchronize(const detail::EventBase& event, const std::stop_token& stop);

}  // namespace runnel::inline RUNNEL_ABI
