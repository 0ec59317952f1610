// SPDX-License-Identifier: Apache-2.0
/// Whether a native stream is being captured, by whoever.
#pragma once

#include "backend.hpp"
#include "base/check.hpp"
#include "base/relaxed_capture.hpp"

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// Queries the runtime. Requires: the stream's device is current if its handle needs that.
[[nodiscard]] inline backend::status query_capture(native::stream handle,
                                                   bool& capturing) noexcept {
  const backend::status s = backend::stream_is_capturing(handle, capturing);
  if (s == backend::ok && capturing) [[unlikely]]
    note_capture();
  return s;
}

enum class CaptureState { none, active, unknown };

/// The noexcept form: clears an error of the runtime.
inline CaptureState capture_state(native::stream handle) noexcept {
  bool capturing = false;
  if (!succeeded_or_note_capture(query_capture(handle, capturing))) return CaptureState::unknown;
  return capturing ? CaptureState::active : CaptureState::none;
}

/// The number of the capture that the stream takes part in. 0 if there is none, or the runtime does
/// not report it.
inline uint64_t capture_number_of(native::stream handle) noexcept {
  uint64_t number = 0;
  return succeeded_or_forget(backend::stream_capture_number(handle, number)) ? number : 0;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
