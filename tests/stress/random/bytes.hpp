// SPDX-License-Identifier: Apache-2.0
/// Bytes to write and digests to compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace random_programs {

/// Bytes that depend on their index and on `value`.
inline void write_pattern(unsigned char* to, std::size_t bytes, unsigned value) {
  for (std::size_t i = 0; i < bytes; ++i)
    to[i] = static_cast<unsigned char>(value * 29U + i * 131U + (i >> 8U) * 7U);
}

/// A number that tells contents apart.
inline std::uint64_t digest(const unsigned char* from, std::size_t bytes) {
  std::uint64_t sum = 0xCBF29CE484222325U ^ bytes;
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i, bytes - i < 8 ? bytes - i : 8);
    sum = (sum ^ word) * 0x100000001B3U;
    sum ^= sum >> 29U;
  }
  return sum;
}

}  // namespace random_programs
