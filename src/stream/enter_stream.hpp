// SPDX-License-Identifier: Apache-2.0
/// How every operation that submits work to a stream begins.
#pragma once

#include "base/hang_report.hpp"
#include "base/process.hpp"
#include "stream/capture.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>
#include <runnel/detail/access.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// Notes the operation for a report about a wait that lasts long. `other` is the id of a stream that this one waits for, or 0.
void note_operation(Slot& slot, const char* operation, std::uint64_t other) noexcept;

///@{ Notes for the same report which stream has recorded an event last, and finds it again; id 0: nobody knows. Requires: enter() was
/// called.
void note_recorder(native::event event, std::uint64_t id) noexcept;
[[nodiscard]] std::uint64_t recorder_of(native::event event) noexcept;
///@}

/// enter(), and the slot behind the view. `operation` must be a literal, as in "copy". @throws as enter() and live_slot()
[[nodiscard]] inline Slot& enter_stream(StreamRef stream, const char* operation, StreamRef other = Access::ref(nullptr, 0)) {
  if (attention.load(std::memory_order_relaxed) == 0 && !in_host_function) [[likely]]
    return live_slot(stream);
  enter_slowly(operation);
  Slot& slot = live_slot(stream);
  if (are_hangs_reported()) note_operation(slot, operation, other.id());
  refuse_beside_capture(slot, operation);
  return slot;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
