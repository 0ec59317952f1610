// SPDX-License-Identifier: Apache-2.0
/// The names and texts of the portable error codes.
#pragma once

#include <runnel/error.hpp>

#include <array>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

struct ErrorText {
  const char* name;
  const char* text;
};

/// Row i has the text of code i + 1.
inline constexpr std::array<ErrorText, 21> error_texts{{
    {"no_device", "there is no device"},
    {"invalid_device", "there is no such device"},
    {"invalid_argument", "an argument is not valid"},
    {"invalid_handle", "the handle is not valid"},
    {"out_of_memory", "out of memory"},
    {"not_permitted", "not permitted here"},
    {"not_supported", "not supported"},
    {"not_ready", "not finished yet"},
    {"forked", "used in a forked child"},
    {"capture", "cannot be captured"},
    {"peer_access", "no peer access"},
    {"driver_too_old", "this call needs a newer driver"},
    {"device_lost", "the device was lost"},
    {"unreadable_source", "the source cannot be read"},
    {"unwritable_destination", "the destination cannot be written"},
    {"pool_exhausted", "the pool is exhausted"},
    {"function_failed", "a function failed"},
    {"timed_out", "the time ran out"},
    {"peer_lost", "another process is gone"},
    {"communicator_broken", "the communicator is broken"},
    {"unknown", "unknown error"},
}};
static_assert(error_texts.size() == static_cast<size_t>(errc::unknown));

/// The code with this number; `errc::unknown` if there is none.
[[nodiscard]] constexpr errc code_of(int number) noexcept {
  return number > 0 && number < static_cast<int>(errc::unknown) ? static_cast<errc>(number)
                                                                : errc::unknown;
}
/// Requires: `code` is a named value of errc.
constexpr size_t row_of(errc code) noexcept { return static_cast<size_t>(code) - 1; }

}  // namespace runnel::inline RUNNEL_ABI::detail
