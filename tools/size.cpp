// SPDX-License-Identifier: Apache-2.0
#include "size.hpp"

#include "base/available_memory.hpp"
#include "base/parse_size.hpp"
#include "failure.hpp"

#include <cstdio>
#include <iterator>
#include <limits>

namespace tool {

std::uint64_t parse_size(std::string_view option, std::string_view text) {
  const auto refuse = [&](const char* why) -> std::uint64_t {
    throw Misuse(std::string{option} + " " + in_quotes(text) + " " + why +
                 "; write a number of bytes with K, M or G if you like, as in 16M");
  };
  const auto [bytes, fault] = runnel::detail::parse_size(text);
  if (fault == runnel::detail::SizeFault::too_large) return refuse("is too large");
  if (fault == runnel::detail::SizeFault::no_size) return refuse("is not a size");
  return bytes == 0 ? refuse("is zero") : bytes;
}

std::string to_text(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  static constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::uint64_t available_memory() {
  return runnel::detail::available_memory().value_or(std::numeric_limits<std::size_t>::max());
}

}  // namespace tool
