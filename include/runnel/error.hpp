// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_errors
/// Errors: one type to catch, with a portable code, the runtime's own number and name, and the name
/// of the operation.
#pragma once

#include <runnel/config.hpp>

#include <system_error>

namespace runnel::inline RUNNEL_ABI {

/// Portable error codes, the same on every backend.
enum class errc {
  no_device = 1,      ///< no device, no driver, or a driver that is too old for all calls
  invalid_device,     ///< no device has this ordinal
  invalid_argument,   ///< refused before anything was enqueued
  invalid_handle,     ///< a moved-from object, or a view of something that was destroyed
  out_of_memory,      ///< also thrown as `std::bad_alloc`
  not_permitted,      ///< not allowed in this context, such as inside a host function or while the
                      ///< process exits
  not_supported,      ///< this device, runtime or backend cannot do it
  not_ready,          ///< the result is not available yet
  forked,             ///< a forked child used a runtime that its parent had initialized
  capture,            ///< the stream is being captured, and this operation cannot be captured
  peer_access,        ///< the devices cannot reach each other's memory this way
  driver_too_old,     ///< this call needs a newer driver
  device_lost,        ///< the device failed; every later call on it fails too
  unreadable_source,  ///< the bytes to copy could not be read
  unwritable_destination,  ///< the bytes to copy could not be written
  pool_exhausted,          ///< a pool reached its limit
  function_failed,         ///< a function of the caller threw: a host function, or one passed to
                           ///< overlap(), see `OverlapError`
  timed_out,               ///< an operation of a communicator took longer than its timeout
  peer_lost,               ///< another process of a communicator has ended, or cannot be reached
  communicator_broken,     ///< the communicator has failed, now or earlier
  unknown                  ///< the runtime returned a number that runnel does not know
};

/// The code's identifier, as in "out_of_memory"; "unknown" for a number that is no code.
[[nodiscard]] const char* name(errc code) noexcept;

/// The category of `errc`, named "runnel".
[[nodiscard]] const std::error_category& error_category() noexcept;
/// The `std::error_code` of an `errc`.
[[nodiscard]] std::error_code make_error_code(errc code) noexcept;

class StreamRef;
class Device;
namespace detail {
class EventBase;
///@{ Wait, and set the code if that fails. Requires: the code is clear.
void set_if_failed(std::error_code& code, StreamRef stream) noexcept;
void set_if_failed(std::error_code& code, const EventBase& event) noexcept;
void set_if_failed(std::error_code& code, Device device) noexcept;
///@}
}  // namespace detail
/// Implements the overload of synchronize() that throws nothing, for streams, events and devices;
/// call it as `stream.synchronize(code)`.
template <class Waited>
void set_by_synchronize(std::error_code& code, const Waited& waited) noexcept {
  // Not in the library: if the program and the library have separate copies of the C++ library,
  // they have different std::system_category() objects.
  code.clear();
  detail::set_if_failed(code, waited);
}

/// The base class of every exception that runnel throws. The thrown object is also a
/// `std::system_error`, or, for out of memory, a `std::bad_alloc`. So
/// `catch (const std::exception&)` catches all of them. (docs/decisions/errors-and-exceptions.md
/// says why.)
class Error {
 public:
  virtual ~Error();
  /// The portable code; comparable with `errc`.
  [[nodiscard]] virtual const std::error_code& code() const noexcept = 0;
  /// One line of text: the operation, the reason, and the runtime's own name and number if the
  /// runtime returned an error.
  [[nodiscard]] virtual const char* what() const noexcept = 0;
  /// The runtime's own error number; 0 if runnel refused the operation, as without a device.
  [[nodiscard]] int native_code() const noexcept { return native_code_; }
  /// The runtime's own name for that number; "" if the error does not come from the runtime.
  [[nodiscard]] const char* native_name() const noexcept { return native_name_; }
  /// The operation that failed, such as "create a stream".
  [[nodiscard]] const char* operation() const noexcept { return operation_; }

 protected:
  ///@{ For the classes of the thrown objects.
  Error(const char* operation, int native_code, const char* native_name) noexcept
      : operation_{operation}, native_name_{native_name}, native_code_{native_code} {}
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ///@}

 private:
  const char* operation_;  // Both are string literals and need not be freed.
  const char* native_name_;
  int native_code_;
};

/// Throws if the kernel launch that this thread has just made failed, and clears the runtime's last
/// error. Call it right behind `kernel<<<...>>>(...)`, which returns no error. `kernel` is the name
/// for the text. Does nothing on the host backend.
/// @throws Error with the runtime's number, such as `cudaErrorInvalidConfiguration`
void check_launch(const char* kernel);

namespace detail {
/// Throws an Error that does not come from the runtime. `reason` is copied. Requires: `operation`
/// is a string literal.
[[noreturn]] void throw_error(errc code, const char* operation, const char* reason);
}  // namespace detail

}  // namespace runnel::inline RUNNEL_ABI

template <>
struct std::is_error_code_enum<runnel::errc> : std::true_type {};
