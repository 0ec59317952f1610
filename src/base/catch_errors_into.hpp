// SPDX-License-Identifier: Apache-2.0
/// Turns exceptions into codes, for noexcept functions.
#pragma once

#include <runnel/error.hpp>

#include <new>
#include <system_error>

namespace runnel::inline RUNNEL_ABI::detail {

/// Calls `call()`, which may set the code. If it throws, sets the code of the exception. Requires:
/// the code is clear, and the call throws nothing but errors of the library and std::bad_alloc.
template <class Call>
void catch_errors_into(std::error_code& code, Call&& call) noexcept {
  try {
    call();
  } catch (const Error& error) {
    code = error.code();
  } catch (const std::bad_alloc&) {
    code = errc::out_of_memory;
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
