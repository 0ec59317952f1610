// SPDX-License-Identifier: Apache-2.0
/// Tests of process_wide().
#include <gtest/gtest.h>

#include <runnel/detail/process_wide.hpp>

namespace {

using runnel::detail::process_wide;

int made = 0;
void* make() {
  ++made;
  return new int{made};
}

TEST(ProcessWide, EachNameHasOneObject) {
  made = 0;
  void* const first = process_wide("test, first", make);
  void* const second = process_wide("test, second", make);
  EXPECT_NE(first, second);
  EXPECT_EQ(process_wide("test, first", make), first);
  EXPECT_EQ(process_wide("test, second", make), second);
  EXPECT_EQ(made, 2);
}

}  // namespace
