// SPDX-License-Identifier: Apache-2.0
/// What the tool could not do, in one line for the person who typed the command.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tool {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The text in quotes, without characters that would break the line or the terminal.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + "'";
}

}  // namespace tool
