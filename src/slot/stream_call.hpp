// SPDX-License-Identifier: Apache-2.0
/// Runtime calls of operations on streams and events. (Copies use CopyCall, and device memory makes
/// its device current itself.)
#pragma once

#include "backend.hpp"
#include "base/check.hpp"
#include "base/not_copied.hpp"
#include "base/process.hpp"
#include "capture/open_captures.hpp"
#include "slot/enter_stream.hpp"
#include "slot/operations.hpp"
#include "slot/point.hpp"
#include "slot/slots.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

/// The scope of one operation on a stream. The runtime may be called, the stream is live, and its
/// device is current if its handle needs that. Stores the operation's name for error texts.
class StreamCall : NotCopied {
 public:
  /// Requires: `operation` is a literal, as in "wait for a stream".
  StreamCall(StreamRef stream, const char* operation)
      : StreamCall{enter_stream(stream, operation), operation} {}
  /// Requires: enter() was called, and the slot is live.
  StreamCall(Slot& slot, const char* operation)
      : operation_{operation},
        slot_{slot},
        // Other handles do not mean "of the current device", and need no runtime call for that.
        device_{slot.device, operation, slot.is_default} {
    if (slot.is_default) [[unlikely]]
      require_own_thread(slot, operation);
    mark_if_asked(slot);
  }

  const char* operation() const noexcept { return operation_; }
  Slot& slot() const noexcept { return slot_; }
  native::stream handle() const noexcept { return slot_.handle; }
  /// @throws the runtime's error, if the call failed
  void check(backend::status status) const { detail::check(status, operation_); }

  /// Describes the operation for observers. Queries whether the stream is being captured.
  Operation about(OperationKind kind) const noexcept {
    return detail::about(slot_, kind, operation_);
  }

  /// Records an event of the library, as a part of the operation.
  void record(native::event event) const {
    check(backend::event_record(event, handle()));
    emit_event(OperationKind::event_recorded, event, true);
  }
  /// `joins`: by this wait the stream takes part in a capture, and is not full. `awaited`: the id
  /// of the stream that is waited for, if there is one.
  void wait_for(native::event event, bool joins, uint64_t awaited = 0) const {
    if (joins) [[unlikely]]
      outlast_device_wait(slot_.device);
    {
      const CaptureChangeLock alone{joins ? &slot_ : nullptr};
      const CaptureChangeLock unmarked{joins ? default_beside(slot_) : nullptr, true};
      check(backend::stream_wait_event(handle(), event));
    }
    emit_wait(event, awaited);
  }
  /// Emits that the stream waits for an event.
  void emit_wait(native::event event, uint64_t awaited = 0) const noexcept {
    emit_event(awaited != 0 ? OperationKind::stream_waited : OperationKind::event_waited, event,
               false, awaited);
  }
  /// Emits what the stream does with an event.
  void emit_event(OperationKind kind, native::event event, bool is_part = false,
                  uint64_t awaited = 0) const noexcept {
    emit([=, this] {
      Operation operation = about(kind);
      operation.event = event;
      operation.is_part = is_part;
      operation.other_stream = awaited;
      return operation;
    });
  }

 private:
  const char* operation_;
  Slot& slot_;
  ScopedDevice device_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
