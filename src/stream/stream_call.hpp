// SPDX-License-Identifier: Apache-2.0
/// How operations on streams and events reach the runtime. (Copies have CopyCall, and device memory
/// makes its device current itself.)
#pragma once

#include "base/check.hpp"
#include "base/process.hpp"
#include "stream/enter_stream.hpp"
#include "stream/operations.hpp"
#include "stream/slots.hpp"
#include "stream/stream_device.hpp"

#include <runnel/detail/backend.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// One operation on a stream: the runtime may be called, the stream is live, and its device is
/// current for as long as this object lives, if the handle needs that. It knows the operation's
/// text, which goes into every exception.
class StreamCall {
 public:
  /// `operation` must be a literal, as in "wait for a stream".
  StreamCall(StreamRef stream, const char* operation)
      : StreamCall{enter_stream(stream, operation), operation} {}
  /// Requires: enter() was called, and the slot is live.
  StreamCall(Slot& slot, const char* operation)
      : operation_{operation}, slot_{slot}, device_{slot, operation} {}
  StreamCall(const StreamCall&) = delete;
  StreamCall& operator=(const StreamCall&) = delete;
  ~StreamCall() {
    if (disturbs_) slot_.ahead.disturb();
  }

  [[nodiscard]] const char* operation() const noexcept { return operation_; }
  [[nodiscard]] Slot& slot() const noexcept { return slot_; }
  [[nodiscard]] native::stream handle() const noexcept { return slot_.handle; }
  /// @throws the runtime's error, if it refused
  void check(backend::status status) const { detail::check(status, operation_); }

  /// The operation enqueues nothing that could write memory of the host, as other work of the
  /// stream and of streams it waits for can.
  void disturbs_nothing() const noexcept { disturbs_ = false; }

  /// The operation, for observers. Asks the runtime whether the stream is being captured.
  [[nodiscard]] Operation about(OperationKind kind) const noexcept {
    return detail::about(slot_, kind, operation_);
  }

  /// Records an event of the library: a part of the operation.
  void record(native::event event) const {
    disturbs_nothing();
    check(backend::event_record(event, handle()));
    emit([this, event] { return about_event(OperationKind::event_recorded, event, true); });
  }
  /// `awaited`: the id of the stream that is waited for, if that is meant.
  void wait_for(native::event event, std::uint64_t awaited = 0) const {
    check(backend::stream_wait_event(handle(), event));
    emit_wait(event, awaited);
  }
  /// The stream has been made to wait.
  void emit_wait(native::event event, std::uint64_t awaited = 0) const noexcept {
    emit([this, event, awaited] {
      Operation wait = about_event(
          awaited != 0 ? OperationKind::stream_waited : OperationKind::event_waited, event, false);
      wait.other_stream = awaited;
      return wait;
    });
  }
  /// A launch of a graph has recorded the event, or waited for it.
  void emit_of_graph(native::event event, bool records) const noexcept {
    emit([=, this] {
      return about_event(records ? OperationKind::event_recorded : OperationKind::event_waited,
                         event, true);
    });
  }
  /// The event has been recorded.
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
  mutable bool disturbs_ = true;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
