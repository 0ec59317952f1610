// SPDX-License-Identifier: Apache-2.0
/// Runtime calls of operations on streams and events. (Copies use CopyCall, and device memory makes
/// its device current itself.)
#pragma once

#include "base/check.hpp"
#include "base/not_copied.hpp"
#include "base/process.hpp"
#include "stream/enter_stream.hpp"
#include "stream/operations.hpp"
#include "stream/slots.hpp"
#include "stream/stream_device.hpp"

#include <runnel/detail/backend.hpp>

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
      : operation_{operation}, slot_{slot}, device_{slot, operation} {}

  [[nodiscard]] const char* operation() const noexcept { return operation_; }
  [[nodiscard]] Slot& slot() const noexcept { return slot_; }
  [[nodiscard]] native::stream handle() const noexcept { return slot_.handle; }
  /// @throws the runtime's error, if the call failed
  void check(backend::status status) const { detail::check(status, operation_); }

  /// Describes the operation for observers. Queries whether the stream is being captured.
  [[nodiscard]] Operation about(OperationKind kind) const noexcept {
    return detail::about(slot_, kind, operation_);
  }

  /// Records an event of the library, as a part of the operation.
  void record(native::event event) const {
    check(backend::event_record(event, handle()));
    emit([this, event] { return about_event(OperationKind::event_recorded, event, true); });
  }
  /// `awaited`: the id of the stream that is waited for, if there is one.
  void wait_for(native::event event, std::uint64_t awaited = 0) const {
    check(backend::stream_wait_event(handle(), event));
    emit_wait(event, awaited);
  }
  /// Emits that the stream waits.
  void emit_wait(native::event event, std::uint64_t awaited = 0) const noexcept {
    emit([this, event, awaited] {
      Operation wait = about_event(
          awaited != 0 ? OperationKind::stream_waited : OperationKind::event_waited, event, false);
      wait.other_stream = awaited;
      return wait;
    });
  }
  /// Emits that a graph launch has recorded the event or waited for it.
  void emit_of_graph(native::event event, bool records) const noexcept {
    emit([=, this] {
      return about_event(records ? OperationKind::event_recorded : OperationKind::event_waited,
                         event, true);
    });
  }
  /// Emits that the event was recorded.
  void emit_record(native::event event) const noexcept {
    emit([this, event] { return about_event(OperationKind::event_recorded, event, false); });
  }

 private:
  [[nodiscard]] Operation about_event(OperationKind kind, native::event event,
                                      bool is_part) const noexcept {
    Operation operation = about(kind);
    operation.event = event;
    operation.is_part = is_part;
    return operation;
  }

  const char* operation_;
  Slot& slot_;
  StreamDevice device_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
