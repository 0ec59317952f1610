// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/backend.hpp>

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

status event_create(native::event& event, EventKind kind) noexcept {
  return rt::event_create(&event, rt::event_flags(kind.timed, kind.blocking_wait, kind.interprocess));
}

status event_destroy(native::event event) noexcept { return rt::event_destroy(event); }

status event_record(native::event event, native::stream stream) noexcept { return rt::event_record(event, stream); }

status stream_wait_event(native::stream stream, native::event event) noexcept { return rt::stream_wait_event(stream, event, 0); }

status event_query(native::event event) noexcept { return rt::event_query(event); }

status event_synchronize(native::event event) noexcept { return rt::event_synchronize(event); }

status event_elapsed(float& milliseconds, native::event start, native::event stop) noexcept {
  return rt::event_elapsed(&milliseconds, start, stop);
}

}  // namespace runnel::inline RUNNEL_ABI::backend
