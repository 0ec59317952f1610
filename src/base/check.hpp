// SPDX-License-Identifier: Apache-2.0
/// Turns failures into exceptions.
#pragma once

#include "backend.hpp"

#include <runnel/error.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Throws for a runtime call that failed. Clears the runtime's last error.
[[noreturn]] void throw_status(backend::status status, const char* operation);

/// The same for errc::capture. The text explains how the call conflicts with the capture, and what
/// to do instead. Defined in src/stream, where the captures are known.
[[noreturn]] void throw_capture_status(backend::status status, const char* operation);

/// Throws for a runtime failure that was stored earlier. Requires: `operation` and `native_name`
/// are literals. `reason` is copied.
[[noreturn]] void throw_error(errc code, const char* operation, const char* reason, int native_code,
                              const char* native_name);

/// Throws errc::invalid_argument. `reason` is copied.
[[noreturn]] void throw_invalid_argument(const char* operation, const char* reason);

/// The same as throw_error() with a reason as for printf. `native` is the runtime's status, or ok.
[[noreturn, gnu::format(printf, 4, 5)]] void throw_formatted(errc code, const char* operation,
                                                             backend::status native,
                                                             const char* format, ...);

/// Throws the same error again, with `part` before its reason: the part of the operation that
/// failed.
[[noreturn]] void throw_again(const Error& error, const char* part);

inline void check(backend::status status, const char* operation) {
  if (status != backend::ok) [[unlikely]]
    throw_status(status, operation);
}

/// For destructors and fallbacks, which report no failure. Clears the runtime's last error. Returns
/// whether the call succeeded.
inline bool succeeded_or_forget(backend::status status) noexcept {
  if (status == backend::ok) [[likely]]
    return true;
  backend::forget_error(status);
  return false;
}

/// Whether the call failed with this error, which is cleared then.
[[nodiscard]] inline bool failed_with(backend::status status, errc code) noexcept {
  if (status == backend::ok || backend::classify(status) != code) return false;
  backend::forget_error(status);
  return true;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
