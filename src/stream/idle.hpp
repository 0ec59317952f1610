// SPDX-License-Identifier: Apache-2.0
/// Queries of streams and events, which never wait.
#pragma once

#include "base/check.hpp"
#include "stream/capture.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Turns the answer to a query into true (complete) or false ("not ready"). @throws any other
/// answer of the runtime
[[nodiscard]] inline bool is_complete(backend::status s, const char* operation) {
  if (s == backend::ok) return true;
  if (!backend::is_not_ready(s)) throw_status(s, operation);
  // "not ready" is an answer, and must not stay behind as the thread's last error
  backend::forget_error(s);
  return false;
}

/// Whether the work that the event marks is complete.
[[nodiscard]] inline bool has_happened(native::event event, const char* operation) {
  return is_complete(backend::event_query(event), operation);
}
/// The same where the caller asks: it may be capturing another stream.
[[nodiscard]] inline bool has_happened_beside_captures(native::event event, const char* operation) {
  return is_complete(own_call_beside_captures([event] { return backend::event_query(event); }),
                     operation);
}
/// The same for functions that must not throw: false after a failure, too.
[[nodiscard]] inline bool has_happened(native::event event) noexcept {
  return succeeded_or_forget(backend::event_query(event));
}

/// How far the work is that the event marks.
[[nodiscard]] inline Progress poll_event(native::event event) noexcept {
  const backend::status s = backend::event_query(event);
  if (s == backend::ok) return Progress::complete;
  backend::forget_error(s);
  return backend::is_not_ready(s) ? Progress::pending : Progress::stalled;
}

/// Whether the work submitted to the stream itself is complete, where the caller asks: it may be
/// capturing another stream. Requires: as has_finished().
[[nodiscard]] inline bool has_finished_beside_captures(const Slot& slot, const char* operation) {
  return is_complete(own_call_beside_captures([&] { return backend::stream_query(slot.handle); }),
                     operation);
}
/// Whether the work submitted to the stream itself is complete. Requires: the stream's device is
/// current if its handle needs that.
[[nodiscard]] inline bool has_finished(const Slot& slot, const char* operation) {
  return is_complete(backend::stream_query(slot.handle), operation);
}

/// Whether the default stream is idle; false where it must not be asked. While a blocking stream is
/// being captured, a query of the default stream would invalidate that capture in every capture
/// mode. The runtime then also refuses to say whether the default stream is being captured, and
/// that question does no harm. Requires: the device is current.
[[nodiscard]] inline bool default_stream_has_finished(const char* operation) {
  if (capture_state(backend::default_stream()) == CaptureState::unknown) return false;
  return is_complete(backend::stream_query(backend::default_stream()), operation);
}

/// Whether the stream's next work would start at once: neither the stream itself nor the default
/// stream that it orders with has work left. The runtimes answer for the stream itself only.
/// Requires: the stream's device is current.
[[nodiscard]] inline bool is_idle(const Slot& slot, const char* operation) {
  if (!slot.blocking) [[likely]]
    return has_finished(slot, operation);
  if (is_legacy_default(slot)) return default_stream_has_finished(operation);
  return has_finished(slot, operation) && default_stream_has_finished(operation);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
