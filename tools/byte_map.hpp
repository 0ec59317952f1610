// SPDX-License-Identifier: Apache-2.0
/// Maps from each byte to another.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tool {

/// Bytes that are mapped by adding the same number to each, modulo 256.
struct ShiftedBytes {
  unsigned char first;
  unsigned char count;
  unsigned char shift;
};

/// A map, in two forms: a table, which many threads of a GPU can share, and ranges, with which a
/// processor maps many bytes with one instruction. It is small enough to be a kernel argument.
struct ByteMap {
  static constexpr int max_ranges = 4;
  unsigned char to[256];
  bool inverted;                     ///< all bits are inverted before the ranges are applied
  int ranges;                        ///< the number of valid elements of `shifted`
  ShiftedBytes shifted[max_ranges];  ///< the ranges are disjoint
};

inline constexpr std::array<std::string_view, 4> byte_map_names = {"upper", "lower", "invert",
                                                                   "rot13"};

/// The map with that name. Letters are ASCII letters, as in the C locale. @throws Failure for a
/// name that is not in `byte_map_names`
[[nodiscard]] ByteMap byte_map(std::string_view name);

}  // namespace tool
