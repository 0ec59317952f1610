// SPDX-License-Identifier: Apache-2.0
#include "size.hpp"

#include "failure.hpp"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <limits>

namespace tool {

std::uint64_t parse_size(std::string_view option, std::string_view text) {
  const auto refuse = [&](const char* why) -> std::uint64_t {
    throw Misuse(std::string{option} + " " + in_quotes(text) + " " + why +
                 "; write a number of bytes with K, M or G if you like, as in 16M");
  };
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) refuse("is too large");
  if (error != std::errc{}) refuse("is not a size");

  std::string_view unit{rest, static_cast<std::size_t>(text.data() + text.size() - rest)};
  int shift = 0;
  if (!unit.empty()) {
    constexpr std::string_view letters = "KMGT";
    const char letter = unit[0] >= 'a' && unit[0] <= 'z' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0];
    if (const auto place = letters.find(letter); place != letters.npos) {
      shift = 10 * (static_cast<int>(place) + 1);
      unit.remove_prefix(1);
      if (unit == "iB") unit = {};
    }
    if (unit == "B") unit = {};
    if (!unit.empty()) refuse("is not a size");
  }
  if (number == 0) refuse("is zero");
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) refuse("is too large");
  return number << shift;
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
  std::ifstream info{"/proc/meminfo"};
  for (std::string line; std::getline(info, line);) {
    unsigned long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kibibytes) == 1) return kibibytes * 1024;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace tool
