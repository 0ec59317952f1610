// SPDX-License-Identifier: Apache-2.0
/// What is known of a stream's progress without waiting for it.
#pragma once

#include "base/check.hpp"
#include "stream/capture.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether the runtime answers "done" or "not ready". @throws what else the runtime says
[[nodiscard]] inline bool is_done(backend::status s, const char* operation) {
  if (s == backend::ok) return true;
  if (!backend::is_not_ready(s)) throw_status(s, operation);
  backend::forget_error(s);  // "not ready" is an answer, and must not stay behind as an error
  return false;
}

/// Whether the work submitted to the stream itself has finished. Requires: the stream's device is current if its handle needs that.
[[nodiscard]] inline bool has_finished(const Slot& slot, const char* operation) {
  return is_done(backend::stream_query(slot.handle), operation);
}

/// Whether the default stream has finished, as far as it may be asked. While a blocking stream is being captured, a query of the default
/// stream would break that capture in every capture mode; asking whether it is capturing is refused then, and harmless.
/// Requires: the device is current.
[[nodiscard]] inline bool default_stream_has_finished(const char* operation) {
  bool capturing = false;
  if (const backend::status s = backend::stream_is_capturing(backend::default_stream(), capturing); s != backend::ok) {
    backend::forget_error(s);
    return false;
  }
  return is_done(backend::stream_query(backend::default_stream()), operation);
}

/// Whether the stream's next work would start at once: nothing is ahead of it, in the stream itself or in the default stream that it
/// orders with. The runtimes answer for the stream itself only. Requires: the stream's device is current.
[[nodiscard]] inline bool is_idle(const Slot& slot, const char* operation) {
  if (!slot.blocking) [[likely]]
    return has_finished(slot, operation);
  const bool is_legacy_default = slot.is_default && slot.thread == nullptr;
  if (is_legacy_default) return default_stream_has_finished(operation);
  return has_finished(slot, operation) && default_stream_has_finished(operation);
}

/// Up to here a driver may put the bytes of a copy to a device among its commands, at the call.
inline constexpr std::size_t driver_limit = std::size_t{32} << 10;

/// Called before a copy from pinned memory to a device. CUDA (13.0, driver 580, seen on an H200 with 1000 bytes, not with 30,000) reads the
/// source of a small one at the call where the stream's own work is done, although work of the default stream that it has to wait for may
/// still write the source. A host function ahead keeps it from that. Requires: the stream's device is current.
inline void keep_source_for_later(const Slot& slot, std::size_t bytes, const char* operation) {
  if (!slot.blocking || bytes > driver_limit) [[likely]]
    return;
  const RelaxedCapture relaxed;
  if (is_capturing(slot, operation) || is_idle(slot, operation)) return;
  check(backend::launch_host_func(
            slot.handle, [](void*) {}, nullptr),
        operation);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
