// SPDX-License-Identifier: Apache-2.0
#include "overlap/error.hpp"

#include "overlap/plan.hpp"

#include <array>
#include <cstdio>
#include <new>
#include <string_view>
#include <system_error>

namespace runnel::inline RUNNEL_ABI {

OverlapError::OverlapError(std::size_t chunk, const Error* cause) noexcept
    : Error{detail::overlap_operation, cause != nullptr ? cause->native_code() : 0,
            cause != nullptr ? cause->native_name() : ""},
      chunk_{chunk} {}
OverlapError::~OverlapError() = default;

namespace detail {
namespace {

/// The text is stored in the exception itself, so that copying the exception cannot throw.
using OverlapText = std::array<char, 320>;

class OverlapSystemError final : public std::system_error, public OverlapError {
 public:
  OverlapSystemError(std::size_t chunk, const std::error_code& code, const Error* cause,
                     const OverlapText& text)
      : std::system_error{code}, OverlapError{chunk, cause}, text_{text} {}
  [[nodiscard]] const std::error_code& code() const noexcept override {
    return std::system_error::code();
  }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  OverlapText text_;
};

class OverlapOutOfMemory final : public std::bad_alloc, public OverlapError {
 public:
  OverlapOutOfMemory(std::size_t chunk, const Error* cause, const OverlapText& text) noexcept
      : OverlapError{chunk, cause}, code_{make_error_code(errc::out_of_memory)}, text_{text} {}
  [[nodiscard]] const std::error_code& code() const noexcept override { return code_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::error_code code_;
  OverlapText text_;
};

[[nodiscard]] OverlapText overlap_text(std::size_t chunk, const char* step,
                                       const char* reason) noexcept {
  // The cause may be an error of this call.
  for (const std::string_view known : {"runnel: ", "could not overlap: "})
    if (std::string_view{reason}.starts_with(known)) reason += known.size();
  OverlapText text;
  std::snprintf(text.data(), text.size(), "runnel: could not %s: chunk %zu, %s: %s",
                overlap_operation, chunk, step, reason);
  return text;
}

}  // namespace

// An Error is caught first: an Error may also be a std::bad_alloc, and the cause may be an
// OverlapError of another call.
void throw_overlap_error(std::size_t chunk, const char* step, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    const OverlapText text = overlap_text(chunk, step, error.what());
    if (error.code() == errc::out_of_memory) throw OverlapOutOfMemory{chunk, &error, text};
    throw OverlapSystemError{chunk, error.code(), &error, text};
  } catch (const std::bad_alloc& error) {
    throw OverlapOutOfMemory{chunk, nullptr, overlap_text(chunk, step, error.what())};
  } catch (const std::exception& error) {
    throw OverlapSystemError{chunk, make_error_code(errc::function_failed), nullptr,
                             overlap_text(chunk, step, error.what())};
  } catch (...) {
    const OverlapText text = overlap_text(chunk, step, "an exception of unknown type");
    throw OverlapSystemError{chunk, make_error_code(errc::function_failed), nullptr, text};
  }
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
