// SPDX-License-Identifier: Apache-2.0
/// Queries of streams and events. None of them blocks.
#pragma once

#include "capture/open_captures.hpp"
#include "slot/capture.hpp"
#include "slot/operations.hpp"

#include <runnel/config.hpp>

#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {

/// Converts the result of a query: true if complete, false if not ready.
/// @throws any other error of the runtime
inline bool is_complete(backend::status s, const char* operation) {
  if (s == backend::ok) return true;
  if (!backend::is_not_ready(s)) throw_status(s, operation);
  // "Not ready" is a result, and must not stay as the thread's last error.
  backend::forget_error(s);
  return false;
}

/// Whether the work before the event is complete, on behalf of the user, who may be capturing
/// another stream. If so, notifies the observers: the host may use the memory of that work.
[[nodiscard]] inline bool has_happened(native::event event, const char* operation) {
  if (!is_complete(call_beside_captures([event] { return backend::event_query(event); }),
                   operation))
    return false;
  emit_complete(event);
  return true;
}

/// Whether the work of this stream is complete. Requires: the stream's device is current if its
/// handle needs that.
inline bool has_finished(const Slot& slot, const char* operation) {
  return is_complete(StreamQueryLock{slot}.query(), operation);
}

/// Whether the stream's next work would start at once: neither this stream nor a default stream
/// that orders with it has unfinished work. The runtimes query this stream only. Requires: the
/// stream's device is current.
inline bool is_idle(const Slot& slot, const char* operation) {
  if (may_be_blocking(slot)) [[unlikely]] {
    const std::unique_lock no_captures = block_captures();
    // While other code captures a blocking stream, the runtime fails to report whether the default
    // stream is being captured; that call is harmless.
    if (!no_captures || capture_state(backend::default_stream()) == CaptureState::unknown ||
        !is_complete(backend::stream_query(backend::default_stream()), operation))
      return false;
    if (is_legacy_default(slot)) return true;
  }
  return has_finished(slot, operation);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
