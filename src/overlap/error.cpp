// SPDX-License-Identifier: Apache-2.0
#include "overlap/error.hpp"

#include "base/thrown.hpp"
#include "overlap/plan.hpp"

#include <cstdio>
#include <new>
#include <string_view>
#include <system_error>

namespace runnel::inline RUNNEL_ABI {

OverlapError::OverlapError(size_t chunk, const Error* cause) noexcept
    : Error{detail::overlap_operation, cause != nullptr ? cause->native_code() : 0,
            cause != nullptr ? cause->native_name() : ""},
      chunk_{chunk} {}
OverlapError::~OverlapError() = default;

namespace detail {
namespace {

[[noreturn]] void fail(size_t chunk, const char* step, const std::error_code& code,
                       const char* reason, const Error* cause = nullptr) {
  // The cause may be an error of this call.
  for (const std::string_view known : {"runnel: ", "could not overlap: "})
    if (std::string_view{reason}.starts_with(known)) reason += known.size();
  ErrorLine text;
  std::snprintf(text.chars, sizeof text.chars, "runnel: could not %s: chunk %zu, %s: %s",
                overlap_operation, chunk, step, reason);
  raise<OverlapError>(code, text, chunk, cause);
}

}  // namespace

// An Error is caught first: an Error may also be a std::bad_alloc, and the cause may be an
// OverlapError of another call.
void throw_overlap_error(size_t chunk, const char* step, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    fail(chunk, step, error.code(), error.what(), &error);
  } catch (const std::bad_alloc& error) {
    fail(chunk, step, errc::out_of_memory, error.what());
  } catch (const std::exception& error) {
    fail(chunk, step, errc::function_failed, error.what());
  } catch (...) {
    fail(chunk, step, errc::function_failed, "an exception of unknown type");
  }
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
