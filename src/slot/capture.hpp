// SPDX-License-Identifier: Apache-2.0
/// Whether a stream is being captured. An operation that would invalidate the capture, or that no
/// graph can contain, checks this first, and throws before it calls the runtime.
#pragma once

#include "base/check.hpp"
#include "base/not_copied.hpp"
#include "base/polling.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "capture/refusals.hpp"
#include "capture/state.hpp"
#include "device/scoped_device.hpp"
#include "slot/slots.hpp"

#include <runnel/config.hpp>

#include <chrono>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// In this scope, the stream begins, joins and ends no capture through the library. Covers the
/// capture check and the call that depends on it. Neither of them blocks. For a query, only
/// runtimes need it that crash if another thread queries the stream meanwhile. A thread does not
/// lock a stream twice.
class StreamQueryLock : NotCopied {
 public:
  explicit StreamQueryLock(const Slot& slot,
                           bool needed = !backend::can_query_beside_begin_of_capture()) noexcept
      : slot_{slot}, needed_{needed} {
    if (!needed_) return;
    while ((slot_.queries_and_change.fetch_add(2, std::memory_order_acquire) & 1U) != 0)
        [[unlikely]] {
      slot_.queries_and_change.fetch_sub(2, std::memory_order_relaxed);
      sync::yield();
    }
  }
  ~StreamQueryLock() {
    if (needed_) slot_.queries_and_change.fetch_sub(2, std::memory_order_release);
  }

  /// Requires, as query(): the stream's device is current if its handle needs that.
  CaptureState capture_state() const noexcept { return detail::capture_state(slot_.handle); }
  /// The only query of a stream in the library. It would invalidate a capture of the stream.
  [[nodiscard]] backend::status query() const noexcept {
    return backend::stream_query(slot_.handle);
  }

 private:
  const Slot& slot_;
  const bool needed_;
};

/// The exclusive counterpart of StreamQueryLock, for the call by which a stream begins, joins or
/// ends a capture. Does nothing for null.
class CaptureChangeLock : NotCopied {
 public:
  /// `briefly`: waits at most a millisecond for the others, of which one may record on a full
  /// stream.
  explicit CaptureChangeLock(Slot* slot, bool briefly = false) noexcept : slot_{slot} {
    if (slot_ == nullptr) return;
    while ((slot_->queries_and_change.fetch_or(1, std::memory_order_acquire) & 1U) != 0)
      sync::yield();
    const auto is_alone = [this] {
      return slot_->queries_and_change.load(std::memory_order_acquire) == 1;
    };
    if (briefly)
      try_for(std::chrono::milliseconds{1}, is_alone);
    else
      while (!is_alone()) sync::yield();
  }
  ~CaptureChangeLock() {
    if (slot_ == nullptr) return;
    slot_->queries_and_change.fetch_and(~uint32_t{1}, std::memory_order_release);
  }

 private:
  Slot* const slot_;
};
/// For another stream that orders with the default stream, the slot of that: a mark there would
/// break a capture that the stream begins or joins meanwhile. Else null. @throws std::bad_alloc
[[nodiscard]] inline Slot* default_beside(const Slot& slot) {
  if (is_legacy_default(slot) || !may_be_blocking(slot)) return nullptr;
  return key_of(default_stream_of(slot.device)).slot;
}

/// Throws the error of a query that has failed.
[[noreturn]] void throw_capture_query(const Slot& slot, backend::status status,
                                      const char* operation);
/// Requires: the stream's device is current if its handle needs that.
/// @throws errc::capture for the default stream while a blocking stream is being captured. The
/// capture goes on.
inline bool is_capturing(const Slot& slot, const char* operation) {
  bool capturing = false;
  const backend::status s = query_capture(slot.handle, capturing);
  if (s != backend::ok) [[unlikely]]
    throw_capture_query(slot, s, operation);
  return capturing;
}

/// For an operation that is not allowed during a capture. If an earlier call has broken the
/// capture, the error says that instead.
/// @throws errc::capture
[[noreturn]] void throw_in_capture(const Slot& slot, const char* operation, const char* reason);
/// For an operation on a stream whose capture an earlier call has broken.
/// @throws errc::capture
[[noreturn]] void throw_broken_capture(const char* operation, backend::status status = backend::ok);

/// For an operation that is not allowed in a capture. Requires: the stream's device is current if
/// its handle needs that.
/// @throws errc::capture with the reason, one of refusals.hpp
inline void refuse_in_capture(const Slot& slot, const char* operation, const char* reason) {
  if (is_capturing(slot, operation)) [[unlikely]]
    throw_in_capture(slot, operation, reason);
}

/// Refuses work on a default stream that would invalidate the capture of a blocking stream.
/// @throws errc::capture
inline void refuse_beside_capture(const Slot& slot, const char* operation) {
  if (!are_captures_open() || !is_legacy_default(slot)) return;
  const ScopedDevice on{slot.device, operation};
  is_capturing(slot, operation);
}

/// Whether waiting for the device would break an open capture, on any thread: one that was begun
/// through the library, or one of other code in which a stream of the library takes part. Misses
/// the captures of other code of which the library has seen nothing, and streams that it does not
/// own and that joined a capture of another device. Allocates nothing, so that without memory, too,
/// it is known what may be waited for.
[[nodiscard]] bool takes_part_in_capture(int device) noexcept;
/// @throws errc::capture
inline void refuse_wait_in_capture(int device, const char* operation) {
  if (takes_part_in_capture(device)) [[unlikely]]
    throw_error(errc::capture, operation, refusal::device_wait);
}

/// Ends the stream's native capture, with one retry. After an error `graph` is null. Requires: as
/// abandon_capture().
[[nodiscard]] backend::status end_native_capture(Slot& slot, native::graph& graph) noexcept;
/// Ends the native capture, and destroys its graph.
void discard_native_capture(Slot& slot) noexcept;
/// Ends the capture that was begun on the stream, if there is one. For a stream whose views end:
/// nobody can end the capture later. Requires: its device is current.
void abandon_capture(StreamKey stream) noexcept;
/// Ends all captures that the calling thread has begun. Requires: the runtime may be called.
void abandon_own_captures() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
