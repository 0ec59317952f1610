// SPDX-License-Identifier: Apache-2.0
/// Whether a stream is being captured. An operation that would invalidate the capture, or cannot be
/// part of a graph, asks first, and is refused before the runtime is called.
#pragma once

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/capture_rules.hpp"
#include "device/scoped_device.hpp"
#include "stream/open_captures.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// The runtime's own answer. Requires: the stream's device is current if its handle needs that.
[[nodiscard]] inline backend::status ask_for_capture(native::stream handle,
                                                     bool& capturing) noexcept {
  const backend::status s = backend::stream_is_capturing(handle, capturing);
  if (s == backend::ok && capturing) [[unlikely]]
    note_capture();
  return s;
}

enum class CaptureState { none, active, unknown };

/// The same for functions that must not throw. A failure is forgotten.
[[nodiscard]] inline CaptureState capture_state(native::stream handle) noexcept {
  bool capturing = false;
  if (!succeeded_or_note_capture(ask_for_capture(handle, capturing))) return CaptureState::unknown;
  return capturing ? CaptureState::active : CaptureState::none;
}

/// The number of the capture that the stream takes part in; 0 if there is none, or the runtime does
/// not say.
[[nodiscard]] inline std::uint64_t capture_number_of(native::stream handle) noexcept {
  std::uint64_t number = 0;
  return succeeded_or_forget(backend::stream_capture_number(handle, number)) ? number : 0;
}

/// While it lives, no capture of the library begins or ends on the stream where the runtime cannot
/// bear that beside a query. For the check whether the stream is captured and the query after it,
/// which both return at once.
class StreamQuestion {
 public:
  explicit StreamQuestion(Slot& slot) noexcept
      : slot_{backend::can_query_beside_begin_of_capture() ? nullptr : &slot} {
    if (slot_ == nullptr) return;
    while ((slot_->questions.fetch_add(2, std::memory_order_acquire) & 1U) != 0) [[unlikely]] {
      slot_->questions.fetch_sub(2, std::memory_order_relaxed);
      sync::yield();
    }
  }
  StreamQuestion(const StreamQuestion&) = delete;
  StreamQuestion& operator=(const StreamQuestion&) = delete;
  ~StreamQuestion() {
    if (slot_ != nullptr) slot_->questions.fetch_sub(2, std::memory_order_release);
  }

 private:
  Slot* const slot_;
};

/// While it lives, no thread asks about the stream by a StreamQuestion. For the call that begins or
/// ends a capture.
class CaptureTurn {
 public:
  explicit CaptureTurn(Slot& slot) noexcept : slot_{slot} {
    while ((slot_.questions.fetch_or(1, std::memory_order_acquire) & 1U) != 0) sync::yield();
    while (slot_.questions.load(std::memory_order_acquire) != 1) sync::yield();
  }
  CaptureTurn(const CaptureTurn&) = delete;
  CaptureTurn& operator=(const CaptureTurn&) = delete;
  ~CaptureTurn() { slot_.questions.fetch_and(~std::uint32_t{1}, std::memory_order_release); }

 private:
  Slot& slot_;
};

/// Requires: the stream's device is current if its handle needs that.
[[nodiscard]] inline bool is_capturing(const Slot& slot, const char* operation) {
  bool capturing = false;
  check(ask_for_capture(slot.handle, capturing), operation);
  return capturing;
}

/// For an operation that a captured stream refuses for that reason; but if an earlier call has
/// broken the capture, says that. @throws errc::capture
[[noreturn]] void throw_in_capture(const Slot& slot, const char* operation, const char* reason);
/// For an operation on a stream whose capture an earlier call has broken. @throws errc::capture
[[noreturn]] void throw_broken_capture(const char* operation, int native_code = 0,
                                       const char* native_name = "");

/// Whether the stream is being captured, so that the operation becomes a node of the graph. @throws
/// errc::capture if the operation is refused then. Requires: the stream's device is current if its
/// handle needs that.
[[nodiscard]] inline bool becomes_node(const Slot& slot, const char* operation, CaptureCase what) {
  if (!is_capturing(slot, operation)) [[likely]]
    return false;
  const CaptureRule& rule = capture_rule(what);
  if (rule.happens == InACapture::refused) throw_in_capture(slot, operation, rule.reason);
  return true;
}
/// The same for an operation that a capture refuses.
inline void refuse_in_capture(const Slot& slot, const char* operation, CaptureCase what) {
  static_cast<void>(becomes_node(slot, operation, what));
}

/// Refuses work on a default stream that would break the capture of a blocking stream. @throws
/// errc::capture
inline void refuse_beside_capture(const Slot& slot, const char* operation) {
  if (!are_captures_open() || !is_legacy_default(slot)) return;
  const ScopedDevice on{slot.device, operation};
  bool capturing = false;
  // the runtimes refuse to answer then, which does no harm
  const backend::status s = ask_for_capture(slot.handle, capturing);
  if (s == backend::ok) return;
  if (backend::classify(s) != errc::capture) throw_status(s, operation);
  backend::forget_error(s);
  throw_error(errc::capture, operation, capture_rule(CaptureCase::default_stream_work).reason);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
