// SPDX-License-Identifier: Apache-2.0
#include "histogram.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace tool {

namespace {

std::string name_of_byte(std::size_t byte) {
  switch (byte) {
    case '\0':
      return "\\0";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case ' ':
      return "space";
    default:
      break;
  }
  char text[8];
  std::snprintf(text, sizeof text, byte > 0x20 && byte < 0x7f ? "'%c'" : "0x%02x",
                static_cast<unsigned>(byte));
  return text;
}

}  // namespace

void print_most_frequent(std::FILE* to, const Histogram& histogram, std::size_t bytes) {
  std::array<std::size_t, 256> order;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return histogram[a] > histogram[b]; });
  std::fprintf(to, "most frequent bytes of the input\n");
  const auto most = static_cast<double>(histogram[order[0]]);
  for (std::size_t i = 0; i < 8 && histogram[order[i]] > 0; ++i) {
    const auto count = static_cast<double>(histogram[order[i]]);
    const std::string bar(static_cast<std::size_t>(30 * count / most), '#');
    std::fprintf(to, "  %-6s %15llu  %5.1f %%  %s\n", name_of_byte(order[i]).c_str(),
                 static_cast<unsigned long long>(histogram[order[i]]),
                 100 * count / static_cast<double>(bytes), bar.c_str());
  }
}

}  // namespace tool
