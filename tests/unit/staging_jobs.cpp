// SPDX-License-Identifier: Apache-2.0
/// Tests of Job, the part of a staged copy that workers see.
#include "copy/staging/job.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace {

using namespace runnel::detail;

TEST(StagingJobs, AStartIsAwaitedHoweverManyJobsNeededNone) {
  std::array<std::uint32_t, 4 * value_distance> values{};
  std::vector<unsigned char> memory(1 << 20), source(64), there(64);
  Ring ring{values.data()};
  ring.set_memory(memory.data(), memory.size());
  Slot slot;
  const Work work{Direction::to_device, {there.data(), 64, source.data(), 64, 64, 1}};
  const std::uint32_t before = ring.jobs[0] = 7;
  ring.started().set(before);
  Job early{slot, work, ring, true}, in_order{slot, work, ring, false};
  early.take_numbers();
  EXPECT_EQ(ring.jobs[0], before) << "after 2^31 of them a comparison of 32 bits is wrong";
  in_order.take_numbers();
  early.announced = in_order.announced = 1;
  EXPECT_TRUE(early.is_claimable());
  EXPECT_FALSE(in_order.is_claimable());
  ring.started().set(in_order.number);
  EXPECT_TRUE(in_order.is_claimable());
}

}  // namespace
