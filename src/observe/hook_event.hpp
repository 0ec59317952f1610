// SPDX-License-Identifier: Apache-2.0
/// Converts an operation into the event that hooks and the trace receive.
#pragma once

#include "base/operation.hpp"

#include <runnel/detail/stream_slot.hpp>
#include <runnel/hooks.hpp>

#include <array>

namespace runnel::inline RUNNEL_ABI::detail {

/// False for a part of another operation, and for kinds that only other observers receive.
inline bool is_for_hooks(const Operation& operation) noexcept {
  return !operation.is_part && operation.kind <= OperationKind::lost_exception;
}

using StreamName = std::array<char, sizeof(StreamSlot::name)>;

/// Gives the native handle of the stream to the hook. The stream may end meanwhile: its name is
/// copied to `name`, which the event refers to. Requires: is_for_hooks(operation).
[[nodiscard]] HookEvent hook_event(const Operation& operation, StreamName& name) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
