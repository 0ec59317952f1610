// SPDX-License-Identifier: Apache-2.0
/// Converts an operation into the event that hooks and the trace receive.
#pragma once

#include "base/operation.hpp"

#include <runnel/hooks.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// False for a part of another operation, and for kinds that only other observers receive.
[[nodiscard]] inline bool is_for_hooks(const Operation& operation) noexcept {
  return !operation.is_part && operation.kind <= OperationKind::lost_exception;
}

/// Gives the native handle of the stream to the hook. Requires: is_for_hooks(operation).
[[nodiscard]] HookEvent hook_event(const Operation& operation) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
