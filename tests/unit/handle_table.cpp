// SPDX-License-Identifier: Apache-2.0
/// Tests of HandleTable with more slots than it has buckets, so that slots share buckets. Nothing
/// looks behind the handles.
#include "slot/handle_table.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

using std::size_t;

namespace {

using namespace runnel::detail;

class HandleTables : public testing::Test {
 protected:
  static constexpr size_t count = 3000;

  HandleTables() : slots_(std::make_unique<std::vector<Slot>>(count)) {
    for (size_t i = 0; i < count; ++i) {
      slot(i).handle = handle(i);
      table_->insert(slot(i));
    }
  }
  static runnel::native::stream handle(size_t i) {
    return reinterpret_cast<runnel::native::stream>((i + 1) * 64);
  }
  Slot& slot(size_t i) { return (*slots_)[i]; }
  HandleTable& table() { return *table_; }
  std::vector<Slot*> found(size_t i) {
    std::vector<Slot*> slots;
    table_->for_each(handle(i), [&](Slot& each) { slots.push_back(&each); });
    return slots;
  }

 private:
  std::unique_ptr<std::vector<Slot>> slots_;
  std::unique_ptr<HandleTable> table_ = std::make_unique<HandleTable>();
};

TEST_F(HandleTables, FindsEachHandleThoughBucketsAreShared) {
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(found(i), std::vector<Slot*>{&slot(i)}) << i;
  EXPECT_TRUE(found(count).empty());
}

TEST_F(HandleTables, FindsAllSlotsOfOneHandle) {
  Slot second, third;
  second.handle = third.handle = handle(7);
  table().insert(second);
  table().insert(third);
  EXPECT_EQ(found(7), (std::vector<Slot*>{&third, &second, &slot(7)}));
}

TEST_F(HandleTables, AnErasedSlotHidesNoOther) {
  for (size_t i = 0; i < count; i += 2) table().erase(slot(i));
  table().erase(slot(0));  // does nothing
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(found(i).size(), i % 2) << i;
  table().for_each(handle(1), [&](Slot& each) { table().erase(each); });
  EXPECT_TRUE(found(1).empty());
}

}  // namespace
