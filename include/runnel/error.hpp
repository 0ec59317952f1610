// SPDX-License-Identifier: Apache-2.0
/// Errors: one type to catch, with a portable code, the runtime's own number and name, and the operation in words.
#pragma once

#include <runnel/config.hpp>

#include <system_error>

namespace runnel::inline RUNNEL_ABI {

/// What went wrong, in the same words on every backend.
enum class errc {
  no_device = 1,           ///< no device, or no driver for it
  invalid_device,          ///< no device has this ordinal
  invalid_argument,        ///< refused before anything was enqueued
  invalid_handle,          ///< a moved-from object, or a view of something that was destroyed
  out_of_memory,           ///< also thrown as `std::bad_alloc`
  not_permitted,           ///< not allowed here: inside a host function, or while the process exits
  not_supported,           ///< this device, runtime or backend cannot do it
  not_ready,               ///< asked for a result that is not there yet
  forked,                  ///< a forked child used a runtime that its parent had started
  capture,                 ///< the stream is being captured and this cannot be captured
  peer_access,             ///< the devices cannot reach each other's memory this way
  driver_too_old,          ///< the installed driver is older than the runtime needs
  device_lost,             ///< the device failed; every later call on it fails too
  unreadable_source,       ///< the bytes to copy could not be read
  unwritable_destination,  ///< the bytes to copy could not be written
  pool_exhausted,          ///< a pool reached its limit
  function_failed,         ///< a function of yours threw; see `OverlapError`
  unknown                  ///< the runtime gave a number that nobody knows
};

/// The category of `errc`, named "runnel".
[[nodiscard]] const std::error_category& error_category() noexcept;
/// So that an `errc` is a `std::error_code`.
[[nodiscard]] std::error_code make_error_code(errc code) noexcept;

/// The base of every exception that runnel throws. What is thrown is also a `std::system_error`, except out of memory,
/// which is also a `std::bad_alloc`: so `catch (const std::exception&)` sees them all. (docs/decisions.md says why.)
class Error {
 public:
  virtual ~Error();
  /// The portable code; compares with `errc`.
  [[nodiscard]] virtual const std::error_code& code() const noexcept = 0;
  /// One line: the operation, the reason, and the runtime's name and number where it was the runtime that refused.
  [[nodiscard]] virtual const char* what() const noexcept = 0;
  /// The runtime's own number; 0 where runnel refused before calling it.
  [[nodiscard]] int native_code() const noexcept { return native_code_; }
  /// The runtime's own name for that number; "" where runnel refused.
  [[nodiscard]] const char* native_name() const noexcept { return native_name_; }
  /// What was attempted, as in "create a stream".
  [[nodiscard]] const char* operation() const noexcept { return operation_; }

 protected:
  ///@{ Made and copied by what is really thrown.
  Error(const char* operation, int native_code, const char* native_name) noexcept
      : operation_{operation}, native_name_{native_name}, native_code_{native_code} {}
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ///@}

 private:
  const char* operation_;  // string literals all: nothing here is owned
  const char* native_name_;
  int native_code_;
};

namespace detail {
/// runnel itself refuses. `operation` must be a literal; `reason` is copied.
[[noreturn]] void throw_error(errc code, const char* operation, const char* reason);
}  // namespace detail

}  // namespace runnel::inline RUNNEL_ABI

template <>
struct std::is_error_code_enum<runnel::errc> : std::true_type {};
