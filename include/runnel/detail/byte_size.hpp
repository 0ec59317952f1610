// SPDX-License-Identifier: Apache-2.0
/// The size of a range of elements in bytes.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

[[noreturn]] void throw_invalid_argument(const char* operation, const char* reason);

/// count * size. @throws errc::invalid_argument if the product overflows std::size_t, because no
/// range can have so many elements
[[nodiscard]] inline std::size_t byte_size(std::size_t count, std::size_t size,
                                           const char* operation) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) [[unlikely]]
    throw_invalid_argument(operation,
                           "the number of elements times their size does not fit an address");
  return bytes;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
