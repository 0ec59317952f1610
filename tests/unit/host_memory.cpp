// SPDX-License-Identifier: Apache-2.0
/// Tests of functions of the host backend that the library calls on other devices only: memory that
/// is not allocated in stream order.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <runnel/detail/backend.hpp>
#include <runnel/runnel.hpp>

#include "../support/gate.hpp"

namespace {

using namespace runnel;

struct Gate : test_support::Gate {
  Gate() : test_support::Gate{std::chrono::seconds{30}} {}
  void close_on(StreamRef stream) { stream.launch_host_func(blocking_function()); }
};

class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    total_ = Device{0}.memory_info().total;
    if (total_ > std::size_t{256} << 20)
      GTEST_SKIP() << "the device has too much memory: see RUNNEL_HOST_MEMORY";
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
  std::atomic<bool> returned{false};
  bool was_open = false;
  std::thread waiting{[&] {
    status = backend::malloc_device(memory, percent(60));
    was_open = gate.is_open();
    returned = true;
  }};
  // A call that does not wait gets 20 ms to return too early. One that waits passes at any speed.
  const auto chance = std::chrono::steady_clock::now() + std::chrono::milliseconds{20};
  while (!returned && std::chrono::steady_clock::now() < chance) std::this_thread::yield();
  gate.open();
  waiting.join();
  EXPECT_TRUE(was_open);
  ASSERT_EQ(status, backend::ok);
  EXPECT_EQ(backend::free_device(memory), backend::ok);
}

}  // namespace
