// SPDX-License-Identifier: Apache-2.0
/// The objects that the library throws.
#pragma once

#include <runnel/error.hpp>

#include <new>
#include <system_error>

namespace runnel::inline RUNNEL_ABI::detail {

/// The text is stored in the exception, so that copying an exception cannot throw, and reporting
/// "out of memory" needs no memory.
struct ErrorLine {
  char chars[320];
};

/// An Error of the class `Kind` that is also an exception of the standard library.
template <class Standard, class Kind>
class Thrown final : public Standard, public Kind {
 public:
  template <class... OfKind>
  Thrown(const Standard& standard, const std::error_code& code, const ErrorLine& text,
         OfKind... of_kind)
      : Standard{standard}, Kind{of_kind...}, code_{code}, text_{text} {}
  [[nodiscard]] const std::error_code& code() const noexcept override { return code_; }
  const char* what() const noexcept override { return text_.chars; }

 private:
  std::error_code code_;
  ErrorLine text_;
};

/// Throws one. `of_kind`: the arguments of the constructor of `Kind`.
template <class Kind, class... OfKind>
[[noreturn]] void raise(const std::error_code& code, const ErrorLine& text, OfKind... of_kind) {
  if (code == errc::out_of_memory)
    throw Thrown<std::bad_alloc, Kind>{std::bad_alloc{}, code, text, of_kind...};
  throw Thrown<std::system_error, Kind>{std::system_error{code}, code, text, of_kind...};
}

}  // namespace runnel::inline RUNNEL_ABI::detail
