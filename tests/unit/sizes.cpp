// SPDX-License-Identifier: Apache-2.0
/// Tests of parse_size().
#include "base/parse_size.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using runnel::detail::parse_size;
using runnel::detail::ParsedSize;
using runnel::detail::SizeFault;

constexpr std::size_t kib = 1UL << 10;
constexpr ParsedSize no_size{0, SizeFault::no_size};
constexpr ParsedSize too_large{0, SizeFault::too_large};

TEST(Sizes, EachLetterHasItsPowerOf1024) {
  for (const char* const text : {"0", "0G", "0B"})
    EXPECT_EQ(parse_size(text), ParsedSize{0}) << text;
  for (const char* const text : {"77", "77B"}) EXPECT_EQ(parse_size(text), ParsedSize{77}) << text;
  std::size_t unit = 1;
  for (const char letter : {'K', 'M', 'G', 'T'}) {
    unit *= kib;
    const std::string upper = std::string{"3"} + letter,
                      lower = std::string{"3"} + static_cast<char>(letter + 'a' - 'A');
    for (const std::string& text : {upper, lower})
      for (const char* const ending : {"", "B", "iB"})
        EXPECT_EQ(parse_size(text + ending), ParsedSize{3 * unit}) << text << ending;
  }
}

TEST(Sizes, WhatIsNoSizeIsSaid) {
  for (const char* const text :
       {"", "M", "-1", " 1", "1 ", "1P", "1Kb", "1KiBs", "1iB", "1BB", "1.5M", "0x10"})
    EXPECT_EQ(parse_size(text), no_size) << text;
}

TEST(Sizes, WhatDoesNotFitIsSaid) {
  EXPECT_EQ(parse_size("18446744073709551615"), ParsedSize{~0UL});
  EXPECT_EQ(parse_size("18446744073709551616"), too_large);
  EXPECT_EQ(parse_size("17179869183G"), ParsedSize{~0UL - (kib * kib * kib - 1)});
  EXPECT_EQ(parse_size("17179869184G"), too_large);
}

}  // namespace
