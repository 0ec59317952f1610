// SPDX-License-Identifier: Apache-2.0
/// Reads sizes and numbers from environment variables.
#pragma once

#include <runnel/config.hpp>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace runnel::inline RUNNEL_ABI::detail {

/// The number that the whole text is; nothing if it is none.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) noexcept {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && rest == end ? std::optional{number} : std::nullopt;
}

/// Why a text is not a size.
enum class SizeFault { none, no_size, too_large };
struct ParsedSize {
  size_t bytes = 0;
  SizeFault fault = SizeFault::none;
  friend bool operator==(const ParsedSize&, const ParsedSize&) noexcept = default;
};
/// Reads a number with an optional suffix K, M, G or T (powers of 1024), and an optional B or iB
/// after that, as in "512M" and "16MiB".
[[nodiscard]] inline ParsedSize parse_size(std::string_view text) noexcept {
  ParsedSize size;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, size.bytes);
  if (error == std::errc::result_out_of_range) return {0, SizeFault::too_large};
  if (error != std::errc{}) return {0, SizeFault::no_size};
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  constexpr std::string_view letters = "KkMmGgTt";
  const size_t letter = text.empty() ? letters.npos : letters.find(text[0]);
  if (letter != letters.npos) text.remove_prefix(1);
  const bool is_whole = text.empty() || text == "B" || (letter != letters.npos && text == "iB");
  if (!is_whole) return {0, SizeFault::no_size};
  const size_t unit = letter == letters.npos ? 1 : size_t{1} << (10 * (letter / 2 + 1));
  if (__builtin_mul_overflow(size.bytes, unit, &size.bytes)) return {0, SizeFault::too_large};
  return size;
}

/// The size in an environment variable; nothing if it is not set. A text that is not a positive
/// size is reported to stderr.
inline std::optional<size_t> size_in_environment(const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  if (const ParsedSize size = parse_size(text); size.bytes > 0) return size.bytes;
  std::fprintf(stderr,
               "runnel: %s=%s is not understood, and does not count: write a number of bytes above "
               "0, or one with K, M or G, as in 512M\n",
               variable, text);
  return std::nullopt;
}

/// The number in an environment variable; nothing if it is not set. A text that is not a number
/// from `least` to `most` is reported to stderr.
inline std::optional<int> number_in_environment(const char* variable, int least,
                                                int most) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<int> number = parse_number<int>(text);
  if (number && *number >= least && *number <= most) return number;
  std::fprintf(
      stderr, "runnel: %s=%s is not understood, and does not count: write a number from %d to %d\n",
      variable, text, least, most);
  return std::nullopt;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
