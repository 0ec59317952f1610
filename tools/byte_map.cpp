// SPDX-License-Identifier: Apache-2.0
#include "byte_map.hpp"

#include "failure.hpp"

#include <initializer_list>

namespace tool {

namespace {

constexpr unsigned char letters = 26;

/// The shift from one byte to another.
constexpr unsigned char from_to(char from, char to) {
  return static_cast<unsigned char>(to - from);
}

ByteMap inverted() {
  ByteMap map{};
  map.inverted = true;
  for (unsigned byte = 0; byte < 256; ++byte) map.to[byte] = static_cast<unsigned char>(255 - byte);
  return map;
}

ByteMap shifted(std::initializer_list<ShiftedBytes> ranges) {
  ByteMap map{};
  for (unsigned byte = 0; byte < 256; ++byte) map.to[byte] = static_cast<unsigned char>(byte);
  for (const ShiftedBytes& range : ranges) {
    map.shifted[map.ranges++] = range;
    for (unsigned i = 0; i < range.count; ++i)
      map.to[range.first + i] = static_cast<unsigned char>(range.first + i + range.shift);
  }
  return map;
}

/// Rotates each letter by 13: the first half of the alphabet maps to the second half, and the
/// second to the first.
ByteMap rotated() {
  constexpr unsigned char half = letters / 2;
  return shifted({{'a', half, half},
                  {'n', half, from_to('n', 'a')},
                  {'A', half, half},
                  {'N', half, from_to('N', 'A')}});
}

}  // namespace

ByteMap byte_map(std::string_view name) {
  if (name == "upper") return shifted({{'a', letters, from_to('a', 'A')}});
  if (name == "lower") return shifted({{'A', letters, from_to('A', 'a')}});
  if (name == "invert") return inverted();
  if (name == "rot13") return rotated();
  std::string names;
  for (const auto known : byte_map_names) names += (names.empty() ? "" : ", ") + std::string{known};
  throw Misuse("--table " + in_quotes(name) + " is not known; choose one of " + names);
}

}  // namespace tool
