// SPDX-License-Identifier: Apache-2.0
/// Tests of functions of the host backend that the library calls on other devices only: memory that
/// is not allocated in stream order.

#include "../conformance/support.hpp"
#include "backend.hpp"

namespace {

using namespace runnel;
using conformance::Gate;

class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    total_ = Device{0}.memory_info().total;
    SKIP_IF(total_ > 256UL << 20, "the device has too much memory: see RUNNEL_HOST_MEMORY");
  }
  std::size_t percent(std::size_t share) const { return total_ / 100 * share; }

 private:
  std::size_t total_ = 0;
};

TEST_F(HostMemory, MoreThanIsLeftIsOutOfMemory) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(backend::malloc_device(first, percent(60)), backend::ok);
  EXPECT_EQ(backend::classify(backend::malloc_device(second, percent(60))), errc::out_of_memory);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(backend::free_device(first), backend::ok);
  ASSERT_EQ(backend::malloc_device(second, percent(60)), backend::ok);
  EXPECT_EQ(backend::free_device(second), backend::ok);
}

TEST_F(HostMemory, AnAllocationWaitsForAPendingFree) {
  const Stream stream;
  Gate gate;
  {
    const DeviceBuffer<unsigned char> buffer{percent(60), stream};
    gate.close_on(stream);
  }
  void* memory = nullptr;
  backend::status status = backend::ok;
  EXPECT_TRUE(
      conformance::held_by(gate, [&] { status = backend::malloc_device(memory, percent(60)); }));
  ASSERT_EQ(status, backend::ok);
  EXPECT_EQ(backend::free_device(memory), backend::ok);
}

}  // namespace
