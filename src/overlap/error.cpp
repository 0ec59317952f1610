// SPDX-License-Identifier: Apache-2.0
#include "overlap/error.hpp"

#include "overlap/plan.hpp"

#include <array>
#include <cstdio>
#include <new>
#include <string_view>
#include <system_error>

namespace runnel { inline namespace RUNNEL_ABI {

OverlapError::OverlapError(std::size_t chunk, const Error* cause) noexcept
    : Error{detail::overlap_operation, cause != nullptr ? cause->native_code() : 0,
            cause != nullptr ? cause->native_name() : ""},
      chunk_{chunk} {}
OverlapError::~OverlapError() = default;

namespace detail {
namespace {

/// The text is stored in the exception itself, so that copying the exception cannot throw.
using OverlapText = std::array<char, 320>;

template <class Standard>
class ThrownOverlap final : public Standard, public OverlapError {
 public:
  ThrownOverlap(const Standard& standard, std::size_t chunk, const std::error_code& code,
                const Error* cause, const OverlapText& text)
      : Standard{standard}, OverlapError{chunk, cause}, code_{code}, text_{text} {}
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

[[noreturn]] void raise(std::size_t chunk, const char* step, const std::error_code& code,
                        const char* reason, const Error* cause = nullptr) {
  const OverlapText text = overlap_text(chunk, step, reason);
  if (code == errc::out_of_memory) throw ThrownOverlap{std::bad_alloc{}, chunk, code, cause, text};
  throw ThrownOverlap{std::system_error{code}, chunk, code, cause, text};
}

}  // namespace

// An Error is caught first: an Error may also be a std::bad_alloc, and the cause may be an
// OverlapError of another call.
void throw_overlap_error(std::size_t chunk, const char* step, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    raise(chunk, step, error.code(), error.what(), &error);
  } catch (const std::bad_alloc& error) {
    raise(chunk, step, make_error_code(errc::out_of_memory), error.what());
  } catch (const std::exception& error) {
    raise(chunk, step, make_error_code(errc::function_failed), error.what());
  } catch (...) {
    raise(chunk, step, make_error_code(errc::function_failed), "an exception of unknown type");
  }
}

}  // namespace detail
}}  // namespace runnel::RUNNEL_ABI
