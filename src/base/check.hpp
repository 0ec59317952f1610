// SPDX-License-Identifier: Apache-2.0
/// Turns failures into exceptions.
#pragma once

#include <runnel/detail/backend.hpp>
#include <runnel/error.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// For a call that the runtime refused. Clears the runtime's last error.
[[noreturn]] void throw_status(backend::status status, const char* operation);

/// The same for errc::capture. It says what the call has to do with captures, and what to do.
/// Defined where the captures are known.
[[noreturn]] void throw_capture_status(backend::status status, const char* operation);

/// For an earlier refusal of the runtime, whose reason was kept. `operation` and `native_name` must
/// be literals; `reason` is copied.
[[noreturn]] void throw_error(errc code, const char* operation, const char* reason, int native_code,
                              const char* native_name);

/// Throws the same error, with `part` before its reason: which part of the operation failed.
[[noreturn]] void throw_again(const Error& error, const char* part);

inline void check(backend::status status, const char* operation) {
  if (status != backend::ok) [[unlikely]]
    throw_status(status, operation);
}

/// For destructors and fallbacks, which report no failure: clears the runtime's last error. Returns
/// whether the call succeeded.
inline bool succeeded_or_forget(backend::status status) noexcept {
  if (status == backend::ok) [[likely]]
    return true;
  backend::forget_error(status);
  return false;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
