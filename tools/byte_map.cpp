// SPDX-License-Identifier: Apache-2.0
#include "byte_map.hpp"

#include "failure.hpp"

namespace tool {

namespace {
template <class F>
ByteMap make(F map) {
  ByteMap result{};
  for (int byte = 0; byte < 256; ++byte) result.to[byte] = static_cast<unsigned char>(map(byte));
  return result;
}
bool is_lower(int byte) { return byte >= 'a' && byte <= 'z'; }
bool is_upper(int byte) { return byte >= 'A' && byte <= 'Z'; }
int rotate(int byte, int first) { return first + (byte - first + 13) % 26; }
}  // namespace

ByteMap byte_map(std::string_view name) {
  if (name == "upper") return make([](int byte) { return is_lower(byte) ? byte - 'a' + 'A' : byte; });
  if (name == "lower") return make([](int byte) { return is_upper(byte) ? byte - 'A' + 'a' : byte; });
  if (name == "invert") return make([](int byte) { return 255 - byte; });
  if (name == "rot13") return make([](int byte) { return is_lower(byte) ? rotate(byte, 'a') : is_upper(byte) ? rotate(byte, 'A') : byte; });
  std::string names;
  for (const auto known : byte_map_names) names += (names.empty() ? "" : ", ") + std::string{known};
  throw Failure("--table " + in_quotes(name) + " is not known; choose one of " + names);
}

}  // namespace tool
