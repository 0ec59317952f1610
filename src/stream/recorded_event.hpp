// SPDX-License-Identifier: Apache-2.0
/// What the sources see of events.
#pragma once

#include <runnel/detail/event_base.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The native event if something was recorded, else null. @throws errc::invalid_handle for a moved-from event
[[nodiscard]] native::event recorded_event(const EventBase& event, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
