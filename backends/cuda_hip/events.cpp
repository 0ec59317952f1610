// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <cstring>

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

status event_create(native::event& event, EventKind kind) noexcept {
  return rt::event_create(&event,
                          rt::event_flags(kind.timed, kind.blocking_wait, kind.interprocess));
}

status event_destroy(native::event event) noexcept { return rt::event_destroy(event); }

status event_record(native::event event, native::stream stream) noexcept {
  return rt::event_record(event, stream);
}

status stream_wait_event(native::stream stream, native::event event) noexcept {
  return rt::stream_wait_event(stream, event, 0);
}

status event_query(native::event event) noexcept { return rt::event_query(event); }

status event_synchronize(native::event event) noexcept { return rt::event_synchronize(event); }

status event_elapsed(float& milliseconds, native::event start, native::event stop) noexcept {
  return rt::event_elapsed(&milliseconds, start, stop);
}

static_assert(sizeof(rt::ipc_event_handle) == sizeof(IpcBytes));

status export_event(IpcBytes& handle, native::event event) noexcept {
  rt::ipc_event_handle native{};
  const status s = rt::ipc_get_event_handle(&native, event);
  std::memcpy(&handle, &native, sizeof handle);
  return s;
}

status open_event(native::event& event, const IpcBytes& handle) noexcept {
  rt::ipc_event_handle native{};
  std::memcpy(&native, &handle, sizeof handle);
  return rt::ipc_open_event_handle(&event, native);
}

}  // namespace runnel::inline RUNNEL_ABI::backend
