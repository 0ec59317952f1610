// SPDX-License-Identifier: Apache-2.0
/// Tests of parse_size().
#include "base/parse_size.hpp"

#include <gtest/gtest.h>

namespace {

using runnel::detail::parse_size;

constexpr std::size_t kib = std::size_t{1} << 10;

TEST(Sizes, EachLetterHasItsPowerOf1024) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("77"), 77U);
  for (const char* const text : {"3K", "3k"}) EXPECT_EQ(parse_size(text), 3 * kib) << text;
  for (const char* const text : {"3M", "3m"}) EXPECT_EQ(parse_size(text), 3 * kib * kib) << text;
  for (const char* const text : {"3G", "3g"}) EXPECT_EQ(parse_size(text), 3 * kib * kib * kib) << text;
}

TEST(Sizes, WhatIsNoSizeIsNothing) {
  for (const char* const text : {"", "M", "-1", " 1", "1 ", "1T", "1KB", "1.5M", "0x10"}) EXPECT_FALSE(parse_size(text)) << text;
}

TEST(Sizes, WhatDoesNotFitIsNothing) {
  EXPECT_EQ(parse_size("18446744073709551615"), ~std::size_t{0});
  EXPECT_FALSE(parse_size("18446744073709551616"));
  EXPECT_EQ(parse_size("17179869183G"), ~std::size_t{0} - (kib * kib * kib - 1));
  EXPECT_FALSE(parse_size("17179869184G"));
}

}  // namespace
