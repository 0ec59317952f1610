// SPDX-License-Identifier: Apache-2.0
/// Describes operations on streams for observers (base/operation.hpp).
#pragma once

#include "base/operation.hpp"
#include "slot/capture.hpp"
#include "slot/slots.hpp"

#include <runnel/native.hpp>

#include <cstdint>
#include <exception>

namespace runnel::inline RUNNEL_ABI::detail {

/// An operation that a capture would record. Queries the runtime. Requires: the stream's device is
/// current if its handle needs that.
inline Operation about(const Slot& slot, OperationKind kind, const char* name) noexcept {
  return {.kind = kind,
          .captured = capture_state(slot.handle) != CaptureState::none,
          .name = name,
          .stream = key_of(slot)};
}

/// Emits the creation of a stream, or its first use through the library.
inline void emit_made(const Slot& slot, const char* name) noexcept {
  emit([&] { return about(slot, OperationKind::stream_made, name); });
}
inline void emit_ended(StreamKey stream) noexcept {
  emit([&] {
    return Operation{.kind = OperationKind::stream_ended, .name = "end a stream", .stream = stream};
  });
}

/// Emits an exception that no caller can collect, because the stream with this id has ended. It
/// belongs to earlier work, and is not a part of the present operation.
inline void emit_lost_exception(uint64_t id, const std::exception_ptr& exception) noexcept {
  if (exception == nullptr) return;
  emit([&] {
    return Operation{.kind = OperationKind::lost_exception,
                     .failed = true,
                     .name = "run a function of a stream that has ended",
                     .stream = {nullptr, id},
                     .number = next_operation_number(),
                     .exception = &exception};
  });
}

/// @{ The host knows that the work of the stream, or before the event, is complete.
inline void emit_complete(const Slot& slot) noexcept {
  emit([at = &slot] {
    return Operation{.kind = OperationKind::known_complete, .stream = key_of(*at)};
  });
}
inline void emit_complete(native::event event) noexcept {
  emit([event] { return Operation{.kind = OperationKind::known_complete, .event = event}; });
}
///@}

}  // namespace runnel::inline RUNNEL_ABI::detail
