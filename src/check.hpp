// SPDX-License-Identifier: Apache-2.0
/// Turning what went wrong into exceptions.
#pragma once

#include <runnel/detail/driver.hpp>
#include <runnel/error.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The runtime refused. Its last error is cleared.
[[noreturn]] void throw_status(driver::status status, const char* operation);

/// runnel refuses for a reason that the runtime gave earlier. `operation` and `native_name` must be literals; `reason` is copied.
[[noreturn]] void throw_error(errc code, const char* operation, const char* reason, int native_code, const char* native_name);

inline void check(driver::status status, const char* operation) {
  if (status != driver::ok) [[unlikely]]
    throw_status(status, operation);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
