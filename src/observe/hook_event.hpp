// SPDX-License-Identifier: Apache-2.0
/// What a hook, and the trace, learn of an operation.
#pragma once

#include "base/operation.hpp"

#include <runnel/hooks.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// False for a part of another operation, and for what concerns other observers only.
[[nodiscard]] inline bool is_for_hooks(const Operation& operation) noexcept {
  return !operation.is_part && operation.kind <= OperationKind::lost_exception;
}

/// Hands out the stream's handle. Requires: it is for hooks.
[[nodiscard]] HookEvent hook_event(const Operation& operation) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
