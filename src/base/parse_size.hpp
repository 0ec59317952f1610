// SPDX-License-Identifier: Apache-2.0
/// Reads sizes and numbers as they are written in environment variables.
#pragma once

#include <runnel/config.hpp>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// Reads a number, and K, M or G behind it (powers of 1024), as in "512M". Nothing if the text is no size, or one that does not fit.
[[nodiscard]] inline std::optional<std::size_t> parse_size(const char* text) noexcept {
  std::size_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  if (error != std::errc{}) return std::nullopt;
  if (rest == end) return number;
  if (rest + 1 != end) return std::nullopt;
  std::size_t unit = 0;
  switch (*rest) {
    case 'K':
    case 'k':
      unit = std::size_t{1} << 10;
      break;
    case 'M':
    case 'm':
      unit = std::size_t{1} << 20;
      break;
    case 'G':
    case 'g':
      unit = std::size_t{1} << 30;
      break;
    default:
      return std::nullopt;
  }
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(number, unit, &bytes)) return std::nullopt;
  return bytes;
}

/// The size in an environment variable; nothing if there is none. A text that is no size, or zero, is reported to stderr.
[[nodiscard]] inline std::optional<std::size_t> size_in_environment(const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<std::size_t> size = parse_size(text);
  if (size && *size > 0) return size;
  std::fprintf(stderr,
               "runnel: %s=%s is not understood, and does not count: write a number of bytes above 0, or one with K, M or G, as in 512M\n",
               variable, text);
  return std::nullopt;
}

/// The number in an environment variable; nothing if there is none. A text that is no number from `least` to `most` is reported to stderr.
[[nodiscard]] inline std::optional<int> number_in_environment(const char* variable, int least, int most) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  if (error == std::errc{} && rest == end && number >= least && number <= most) return number;
  std::fprintf(stderr, "runnel: %s=%s is not understood, and does not count: write a number from %d to %d\n", variable, text, least, most);
  return std::nullopt;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
