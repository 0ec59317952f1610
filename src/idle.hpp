// SPDX-License-Identifier: Apache-2.0
/// Whether a stream has nothing ahead.
#pragma once

#include "check.hpp"
#include "stream_slots.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The stream's device is current if its handle needs that.
[[nodiscard]] inline bool is_idle(const Slot& slot, const char* operation) {
  const driver::status s = driver::stream_query(slot.handle);
  if (s == driver::ok) return true;
  if (!driver::is_not_ready(s)) throw_status(s, operation);
  driver::forget_error(s);  // "not ready" is an answer, and must not stay behind as an error
  return false;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
