// SPDX-License-Identifier: Apache-2.0
/// A failure of the command, with a message of one line for the user.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tool {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The command line is wrong.
struct Misuse : Failure {
  using Failure::Failure;
};

/// Returns the text with question marks in place of control characters, which could break the line
/// or the terminal.
[[nodiscard]] inline std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out;
}

[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  std::string out = "'";  // g++ 12 warns of "'" + a std::string (GCC's bug 105329)
  return (out += printable(text)) += '\'';
}

}  // namespace tool
