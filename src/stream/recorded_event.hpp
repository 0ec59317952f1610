// SPDX-License-Identifier: Apache-2.0
/// How the library's own sources read an event.
#pragma once

#include <runnel/event.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The native event; null if nothing was recorded. @throws errc::invalid_handle for a moved-from event
[[nodiscard]] native::event recorded_event(const EventBase& event, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
