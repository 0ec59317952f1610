// SPDX-License-Identifier: Apache-2.0
#include <runnel/error.hpp>

#include "base/check.hpp"
#include "base/error_texts.hpp"
#include "base/lost_device.hpp"
#include "base/process.hpp"
#include "base/thrown.hpp"

#include <runnel/detail/stream_slot.hpp>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>

namespace runnel::inline RUNNEL_ABI {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "runnel"; }
  std::string message(int code) const override {
    return detail::error_texts[detail::row_of(detail::code_of(code))].text;
  }
  [[nodiscard]] std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<errc>(code)) {
      case errc::no_device:
      case errc::invalid_device:
        return std::errc::no_such_device;
      case errc::invalid_argument:
      case errc::invalid_handle:
        return std::errc::invalid_argument;
      case errc::out_of_memory:
        return std::errc::not_enough_memory;
      case errc::not_permitted:
        return std::errc::operation_not_permitted;
      case errc::not_supported:
        return std::errc::operation_not_supported;
      case errc::not_ready:
        return std::errc::resource_unavailable_try_again;
      default:
        return {code, *this};
    }
  }
  /// As in the base class, but compares categories by their names: a program with its own copy of
  /// the C++ library has its own generic category.
  [[nodiscard]] bool equivalent(int code,
                                const std::error_condition& condition) const noexcept override {
    const std::error_condition own = default_error_condition(code);
    return condition.value() == own.value() &&
           std::strcmp(condition.category().name(), own.category().name()) == 0;
  }
};

}  // namespace

Error::~Error() = default;

const std::error_category& error_category() noexcept {
  static constinit const Category category;
  return category;
}

const char* name(errc code) noexcept {
  return detail::error_texts[detail::row_of(detail::code_of(static_cast<int>(code)))].name;
}

std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

namespace detail {

void throw_error(errc code, const char* operation, const char* reason) {
  throw_error(code, operation, reason, 0, "");
}

void throw_error(errc code, const char* operation, const char* reason, int native_code,
                 const char* native_name) {
  ErrorLine text;
  if (native_code != 0)
    std::snprintf(text.chars, sizeof text.chars, "runnel: could not %s: %s (%s, %d)", operation,
                  reason, native_name, native_code);
  else
    std::snprintf(text.chars, sizeof text.chars, "runnel: could not %s: %s", operation, reason);
  raise<Error>(make_error_code(code), text, operation, native_code, native_name);
}

void throw_formatted(errc code, const char* operation, backend::status native, const char* format,
                     ...) {
  ErrorLine reason;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(reason.chars, sizeof reason.chars, format, arguments);
  va_end(arguments);
  throw_error(code, operation, reason.chars, native,
              native == backend::ok ? "" : backend::error_name(native));
}

void throw_again(const Error& error, const char* part) {
  const auto known =
      static_cast<size_t>(std::snprintf(nullptr, 0, "runnel: could not %s: ", error.operation()));
  ErrorLine text;
  std::snprintf(text.chars, sizeof text.chars, "runnel: could not %s: %s: %s", error.operation(),
                part, error.what() + std::min(known, std::strlen(error.what())));
  raise<Error>(error.code(), text, error.operation(), error.native_code(), error.native_name());
}

void throw_status(backend::status status, const char* operation) {
  backend::forget_error(status);
  const errc code = backend::classify(status);
  if (code == errc::capture) throw_capture_status(status, operation);
  if (code == errc::device_lost)
    if (const auto call = before_lost_device_is_reported.load()) call();
  throw_error(code, operation, backend::error_text(status), status, backend::error_name(status));
}

void throw_invalid_argument(const char* operation, const char* reason) {
  throw_error(errc::invalid_argument, operation, reason);
}

void throw_dead_stream(uint64_t id) {
  if (id == 0) throw_error(errc::invalid_handle, "use a stream", "it was moved from");
  throw_formatted(errc::invalid_handle, "use a stream", backend::ok,
                  "stream %llu was destroyed, moved from or released",
                  static_cast<unsigned long long>(id));
}

}  // namespace detail

void check_launch(const char* kernel) {
  constexpr const char* operation = "launch a kernel";
  detail::enter(operation);
  if (const backend::status status = backend::take_last_error(); status != backend::ok) try {
      detail::throw_status(status, operation);
    } catch (const Error& error) {
      detail::throw_again(error, kernel);
    }
}

}  // namespace runnel::inline RUNNEL_ABI
