// SPDX-License-Identifier: Apache-2.0
// Arguments that are refused in words.
#pragma once

#include "errors.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <concepts>
#include <optional>

namespace binding {

/// What the caller passed for a value of type T.
template <class T>
struct Argument {
  /// @throws TypeError
  [[nodiscard]] T of(const char* name) const {
    T value{};
    if (!nb::try_cast<T>(object, value))
      refuse_argument(name, object,
                      std::same_as<T, bool>  ? "True or False"
                      : std::same_as<T, int> ? "a whole number of 32 bits"
                      : std::same_as<T, std::optional<double>>
                          ? "a number of seconds, or None for no limit"
                          : "a whole number of 64 bits that is not negative");
    return value;
  }
  nb::handle object;
};
using Seconds = Argument<std::optional<double>>;
/// The type that a signature shows, beside the None of an argument's default.
template <class T>
struct Shown {
  using type = T;
};
template <class T>
struct Shown<std::optional<T>> : Shown<T> {};

/// A function of the program. @throws TypeError
[[nodiscard]] inline nb::object function_in(nb::handle object) {
  if (PyCallable_Check(object.ptr()) == 0) refuse_argument("function", object, "a function");
  return nb::borrow(object);
}

}  // namespace binding

template <class T>
struct nanobind::detail::type_caster<binding::Argument<T>> {
  NB_TYPE_CASTER(binding::Argument<T>, make_caster<typename binding::Shown<T>::type>::Name)
  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};
