// SPDX-License-Identifier: Apache-2.0
/// Whether a stream is being captured. What would break the capture off, or cannot be part of a graph, is refused before the runtime
/// hears of it.
#pragma once

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The stream's device is current if its handle needs that.
[[nodiscard]] inline bool is_capturing(const Slot& slot, const char* operation) {
  bool capturing = false;
  check(backend::stream_is_capturing(slot.handle, capturing), operation);
  if (capturing) [[unlikely]]
    captures_met.store(true, std::memory_order_relaxed);
  return capturing;
}

inline void refuse_in_capture(const Slot& slot, const char* operation, const char* reason) {
  if (is_capturing(slot, operation)) [[unlikely]]
    throw_error(errc::capture, operation, reason);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
