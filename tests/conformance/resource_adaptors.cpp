// SPDX-License-Identifier: Apache-2.0
// Adaptors over resources that allocate in stream order: runnel's own, and one that takes native
// streams.
#include <runnel/resource_adaptors.hpp>

#include "support.hpp"

namespace conformance::resource_adaptors_cases {
using ResourceAdaptors = Conformance;

constexpr size_t size = mib;

/// As another library's resource: it takes native streams.
struct NativeResource {
  DeviceResource device;
  void* allocate(native::stream stream, size_t bytes, size_t alignment) {
    return device.allocate(StreamRef::from_native(stream, device.device()), bytes, alignment);
  }
  void deallocate(native::stream stream, void* pointer, size_t bytes, size_t alignment) {
    device.deallocate(StreamRef::from_native(stream, device.device()), pointer, bytes, alignment);
  }
};
struct Synchronous {
  void* allocate(size_t bytes);
  void deallocate(void* pointer);
};
static_assert(StreamOrderedResource<DeviceResource> && StreamOrderedResource<NativeResource>);
static_assert(StreamOrderedResource<LimitResource<StatisticsResource<NativeResource>>>,
              "adaptors go over adaptors");
static_assert(!StreamOrderedResource<Synchronous> && !StreamOrderedResource<int>);

TEST_F(ResourceAdaptors, CopiesOfALimitShareIt) {
  const Stream stream;
  LimitResource limited{NativeResource{DeviceResource{device()}}, size};
  auto copy = limited;
  EXPECT_TRUE(copy == limited);
  void* const block = limited.allocate(stream, size);
  fill_bytes(stream, block, 1, size);
  EXPECT_ERROR(out_of_memory, copy.allocate(stream, 1));
  EXPECT_ERROR(out_of_memory, copy.allocate(stream, ~0UL));
  copy.deallocate(stream, block, size);
  EXPECT_EQ(limited.in_use(), 0U);
  EXPECT_ERROR(invalid_argument, limited.allocate(stream, 16, 3)) << "what the resource throws";
  EXPECT_EQ(limited.in_use(), 0U) << "a refused allocation counts";
  limited.deallocate(stream, nullptr, size);
  EXPECT_EQ(limited.in_use(), 0U) << "no block was given back";
  stream.synchronize();
}

TEST_F(ResourceAdaptors, ThreadsTogetherStayWithinALimit) {
  LimitResource limited{DeviceResource{device()}, 4 * size};
  std::atomic_int fit{0};
  std::latch all{8};
  on_threads(8, [&](int) {
    const Stream stream;
    void* block = nullptr;
    if (code_of([&] { block = limited.allocate(stream, size); }) == nothing_thrown) ++fit;
    all.arrive_and_wait();
    if (block != nullptr) limited.deallocate(stream, block, size);
  });
  EXPECT_EQ(fit, 4);
  EXPECT_EQ(limited.in_use(), 0U);
}

TEST_F(ResourceAdaptors, StatisticsCountWhatGoesThroughThem) {
  const Stream stream;
  StatisticsResource counted{DeviceResource{device()}};
  void* const first = counted.allocate(stream, 1000);
  void* const second = counted.allocate(stream, 24);
  EXPECT_EQ(counted.statistics().in_use, 1024U);
  EXPECT_EQ(counted.statistics().blocks, 2U);
  counted.deallocate(stream, first, 1000);
  EXPECT_EQ(counted.statistics().peak, 1024U);
  counted.reset_peak();
  EXPECT_EQ(counted.statistics().peak, 24U);
  EXPECT_ERROR(invalid_argument, counted.allocate(stream, 16, 3));
  EXPECT_EQ(counted.allocate(stream, 0), nullptr);
  counted.deallocate(stream, nullptr, 0);
  EXPECT_EQ(counted.statistics().blocks, 1U);
  counted.deallocate(stream, second, 24);
  EXPECT_EQ(counted.statistics().in_use, 0U);
}

TEST_F(ResourceAdaptors, TheLogHasEveryCallInOrder) {
  const Stream stream;
  std::vector<ResourceCall> calls;
  LoggingResource logged{NativeResource{DeviceResource{device()}},
                         [&](const ResourceCall& call) { calls.push_back(call); }};
  void* const block = logged.allocate(stream, 100, 64);
  logged.deallocate(stream, block, 100, 64);
  EXPECT_ERROR(invalid_argument, logged.allocate(stream, 16, 3));
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0].kind, ResourceCall::Kind::allocate);
  EXPECT_EQ(calls[0].pointer, block);
  EXPECT_EQ(calls[0].stream, stream.id());
  EXPECT_EQ(calls[1].kind, ResourceCall::Kind::deallocate);
  EXPECT_EQ(calls[1].bytes, 100U);
  EXPECT_EQ(calls[1].alignment, 64U);
  EXPECT_EQ(calls[2].kind, ResourceCall::Kind::failed_allocate);
  EXPECT_EQ(calls[2].pointer, nullptr);
}

TEST_F(ResourceAdaptors, ABlockWhoseLogThrowsIsGivenBack) {
  const Stream stream;
  StatisticsResource counted{DeviceResource{device()}};
  LoggingResource logged{counted, [](const ResourceCall&) { throw std::runtime_error{"full"}; }};
  EXPECT_THROW(drop(logged.allocate(stream, 100)), std::runtime_error);
  EXPECT_EQ(counted.statistics().blocks, 0U);
}

}  // namespace conformance::resource_adaptors_cases
