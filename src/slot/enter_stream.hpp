// SPDX-License-Identifier: Apache-2.0
/// The first step of each operation that submits work to a stream.
#pragma once

#include "base/process.hpp"
#include "slot/capture.hpp"
#include "slot/operations.hpp"
#include "slot/slots.hpp"

#include <runnel/config.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// Calls enter(), and returns the slot of the stream. Requires: `operation` is a literal, as in
/// "copy". `awaited`, a stream's id, or `event` is what the stream will wait for.
/// @throws as enter() and live_slot()
inline Slot& enter_stream(StreamRef stream, const char* operation, uint64_t awaited = 0,
                          native::event event = nullptr) {
  if (slow_path_reasons.load(std::memory_order_relaxed) == 0 && !in_host_function) [[likely]]
    return live_slot(stream);
  enter_slowly(operation);
  Slot& slot = live_slot(stream);
  emit([&] {
    return Operation{.kind = OperationKind::entered,
                     .name = operation,
                     .stream = key_of(slot),
                     .other_stream = awaited,
                     .event = event};
  });
  refuse_beside_capture(slot, operation);
  return slot;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
