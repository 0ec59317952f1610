// SPDX-License-Identifier: Apache-2.0
/// Maps from each byte to another, as tables of 256 entries.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tool {

/// Small enough to be an argument of a kernel.
struct ByteMap {
  unsigned char to[256];
};

inline constexpr std::array<std::string_view, 4> byte_map_names = {"upper", "lower", "invert", "rot13"};

/// The map with that name. Letters are ASCII letters, as in the C locale. @throws Failure for a name that is not in `byte_map_names`
[[nodiscard]] ByteMap byte_map(std::string_view name);

}  // namespace tool
