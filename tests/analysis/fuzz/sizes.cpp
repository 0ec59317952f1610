// SPDX-License-Identifier: Apache-2.0
/// Sizes, as environment variables and the command's options have them. The parser is compared with
/// a slow one.
#include "base/parse_size.hpp"
#include "failure.hpp"
#include "size.hpp"

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

using std::uint64_t;

namespace {

__extension__ typedef unsigned __int128 Wide;

/// Digits, then a unit or nothing, then an ending or nothing. Nothing if the number does not fit.
std::optional<uint64_t> slow_parse(std::string_view text) {
  constexpr std::string_view units = "KMGT";
  Wide number = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    number = number * 10 + static_cast<Wide>(text[digits] - '0');
    if (number > UINT64_MAX) return std::nullopt;
  }
  if (digits == 0) return std::nullopt;
  std::string_view rest = text.substr(digits);
  bool has_unit = false;
  for (std::size_t i = 0; i < units.size() && !rest.empty() && !has_unit; ++i)
    if (rest[0] == units[i] || rest[0] == units[i] + ('a' - 'A')) {
      has_unit = true;
      number <<= 10 * (i + 1);
      rest.remove_prefix(1);
    }
  const bool ends = rest.empty() || rest == "B" || (has_unit && rest == "iB");
  if (!ends || number > UINT64_MAX) return std::nullopt;
  return static_cast<uint64_t>(number);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text{reinterpret_cast<const char*>(data), size};

  const std::optional<uint64_t> expected = slow_parse(text);
  const runnel::detail::ParsedSize parsed = runnel::detail::parse_size(text);
  if (parsed.fault == runnel::detail::SizeFault::none ? expected != parsed.bytes
                                                      : expected || parsed.bytes != 0)
    std::abort();

  std::optional<uint64_t> option;
  try {
    option = tool::parse_size("--chunk", text);
  } catch (const tool::Failure&) {
  }
  if (option != (expected == uint64_t{0} ? std::nullopt : expected)) std::abort();
  if (option && tool::to_text(*option).empty()) std::abort();
  return 0;
}
