// SPDX-License-Identifier: Apache-2.0
// How many calls of the runtime the library makes, which only a stand-in counts; and handles that
// the runtime reuses.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <runnel/hooks.hpp>
#include <runnel/runnel.hpp>
#include <string_view>
#include <thread>
#include <vector>

#include "../../support/standin/inspect.hpp"

namespace {
using namespace runnel;

class Calls : public testing::Test {
 protected:
  void SetUp() override {
    inspect_ = reinterpret_cast<decltype(&standin_inspect)>(dlsym(RTLD_DEFAULT, "standin_inspect"));
    if (inspect_ == nullptr) GTEST_SKIP() << "the runtime counts no calls";
  }
  /// The calls that `f` makes.
  template <class F>
  long calls_of(F&& f) const {
    const long before = calls();
    f();
    return calls() - before;
  }

  /// What the runtime has not freed.
  std::size_t device_blocks() const { return view().device_blocks; }
  long calls_in_host_functions() const { return view().calls_in_host_functions; }
  long uses_after_destroy() const { return view().uses_after_destroy; }

 private:
  StandinView view() const {
    StandinView seen{};
    inspect_(&seen);
    return seen;
  }
  long calls() const { return view().calls; }
  decltype(&standin_inspect) inspect_ = nullptr;
};

TEST_F(Calls, ABatchIsOneCallWhateverItsSize) {
  if (CUDART_VERSION < 12080) GTEST_SKIP() << "this version has no call for a batch";
  if (Device::count() > 1)
    GTEST_SKIP() << "with several devices the library asks of which one each address is";
  constexpr std::size_t count = 64, size = 100;
  const Stream stream;
  const PinnedBuffer<int> from{count * size};
  DeviceBuffer<int> to{count * size, stream};
  stream.synchronize();
  std::vector<CopyOperation> operations;
  for (std::size_t i = 0; i < count; ++i)
    operations.push_back({to.data() + i * size, from.data() + i * size, size * sizeof(int),
                          MemoryKind::device, MemoryKind::pinned});
  const auto calls_of_first = [&](std::size_t n) {
    return calls_of([&] {
      EXPECT_EQ(copy_batch(stream, std::span{operations}.first(n)), (CopyBatchResult{.direct = n}));
    });
  };
  EXPECT_EQ(calls_of_first(count), calls_of_first(2));
  EXPECT_GE(calls_of_first(2), 1);
  stream.synchronize();
}

TEST_F(Calls, CheckLaunchThrowsTheLastErrorOnce) {
  cudaSetDevice(1000);  // as a launch that fails
  try {
    check_launch("scale");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), errc::invalid_device);
    EXPECT_EQ(error.native_code(), cudaErrorInvalidDevice);
    EXPECT_EQ(std::string_view{error.what()}.find("runnel: could not launch a kernel: scale: "), 0U)
        << error.what();
  }
  EXPECT_NO_THROW(check_launch("scale"));
}

TEST_F(Calls, AGuardAsksForTheCurrentDeviceOnceOnEachWay) {
  if (Device::count() < 2) GTEST_SKIP() << "with one device nothing is asked";
  const Stream stream;
  Device::current().use();  // has a context, which the driver then names
  static_cast<void>(Device::current());
  EXPECT_EQ(calls_of([&] { const StreamGuard with{stream}; }), 2);
}

/// The vendors allow no call of the runtime in a host function, also if a hook is set.
TEST_F(Calls, WhatAHostFunctionDropsMakesNone) {
  const Stream stream;
  std::optional ended{Stream{}};
  std::optional<DeviceBuffer<int>> buffer{std::in_place, 10, stream},
      of_ended{std::in_place, 10, *ended};
  ended.reset();
  set_hook([](const HookEvent&) noexcept {});
  stream.launch_host_func([&] {
    buffer.reset();
    of_ended.reset();
  });
  stream.synchronize();
  set_hook(nullptr);
  EXPECT_EQ(calls_in_host_functions(), 0);
}

/// The library ends that stream later, when its owner may have destroyed it.
TEST_F(Calls, ACapturedStreamThatAHostFunctionNoLongerBorrowsIsNotUsed) {
  const Stream stream;
  Stream owner;
  std::optional borrowed{Stream::from_native(owner.release(), stream.device(), Ownership::borrow)};
  const native::stream handle = borrowed->native();
  std::atomic_bool may_go_on{false};
  stream.on_complete([&](const Outcome&) {
    while (!may_go_on) std::this_thread::yield();
  });
  begin_capture(*borrowed);
  stream.launch_host_func([&] { borrowed.reset(); });
  stream.synchronize();
  const long uses = uses_after_destroy();
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(handle, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess);
  may_go_on = true;
  std::promise<void> next;  // The library has ended the borrowed stream before it calls this.
  stream.on_complete([&](const Outcome&) { next.set_value(); });
  next.get_future().wait();
  EXPECT_EQ(uses_after_destroy(), uses);
}

TEST(DeviceFacts, AreTheRuntimesAttributes) {
  const auto asked = [](cudaDeviceAttr attribute) {
    int value = 0;
    EXPECT_EQ(cudaDeviceGetAttribute(&value, attribute, 0), cudaSuccess);
    return value;
  };
  const Device device{0};
  EXPECT_EQ(device.async_engine_count(), asked(cudaDevAttrAsyncEngineCount));
  EXPECT_EQ(device.multiprocessor_count(), asked(cudaDevAttrMultiProcessorCount));
  EXPECT_EQ(device.can_map_host_memory(), asked(cudaDevAttrCanMapHostMemory) != 0);
  EXPECT_EQ(device.can_pin_read_only_memory(),
            asked(cudaDevAttrHostRegisterReadOnlySupported) != 0);
  EXPECT_EQ(device.has_pageable_memory_access(), asked(cudaDevAttrPageableMemoryAccess) != 0);
  EXPECT_EQ(device.can_use_host_page_tables(),
            asked(cudaDevAttrPageableMemoryAccessUsesHostPageTables) != 0);
  EXPECT_EQ(device.has_memory_pools(), asked(cudaDevAttrMemoryPoolsSupported) != 0);
}

TEST(ForeignDevices, TheDeviceThatOtherCodeMakesCurrentIsSeen) {
  if (Device::count() < 2) GTEST_SKIP() << "needs two devices";
  const Device first{0}, second{1};
  const Stream on_first{first}, on_second{second};
  for (int i = 0; i < 3; ++i) {
    for (const Device there : {first, second}) {
      ASSERT_EQ(cudaSetDevice(there.ordinal()), cudaSuccess);
      EXPECT_EQ(Device::current(), there);
      for (const Stream* stream : {&on_first, &on_second}) {
        const StreamGuard with{*stream};
        EXPECT_EQ(with.original_device(), there);
        int device = -1;
        ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
        EXPECT_EQ(device, stream->device().ordinal());
      }
      EXPECT_EQ(Device::current(), there);
      {
        const StreamGuard with{on_first};
        ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
      }
      int device = -1;
      ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
      EXPECT_EQ(device, there.ordinal()) << "a guard restores the device that other code changed";
    }
  }
}

/// Other code destroys its stream, and the runtime gives the handle to a Stream.
TEST(ForeignHandles, AViewEndsWhenItsHandleIsAnotherStreams) {
  if (Device::count() == 0) GTEST_SKIP() << Device::why_no_device();
  const LiveObjects before = live_objects();
  int reused = 0;
  for (int i = 0; i < 100; ++i) {
    cudaStream_t foreign = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&foreign, cudaStreamNonBlocking, 0), cudaSuccess);
    const StreamRef view = StreamRef::from_native(foreign);
    const Stream wrapper = Stream::from_native(foreign, Ownership::borrow);
    DeviceBuffer<int> memory{10, view};
    const PinnedBuffer<int> pinned{10};
    copy(view, memory, pinned);
    view.synchronize();
    ASSERT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
    const Stream own;
    EXPECT_NE(own, view);
    if (own.native() != foreign) continue;
    ++reused;
    EXPECT_EQ(wrapper, view);  // as long as it is there, views are
    EXPECT_EQ(StreamRef::from_native(own.native()), own);
    memory.set_stream(own);
  }
  for (int i = 0; i < 100; ++i) {
    cudaStream_t foreign = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&foreign, cudaStreamNonBlocking, 0), cudaSuccess);
    const StreamRef view = StreamRef::from_native(foreign);
    ASSERT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
    const Stream own;
    if (own.native() != foreign) continue;
    ++reused;
    EXPECT_FALSE(view.is_valid());
  }
  if (std::getenv("STANDIN_REUSE_HANDLES") != nullptr) {
    EXPECT_EQ(reused, 200);
  }
  EXPECT_EQ(live_objects().streams, before.streams);
  EXPECT_EQ(live_objects().device_blocks, before.device_blocks);
}

/// The handle of a borrowed stream means another stream by now, which is idle.
TEST_F(Calls, TheEndOfABorrowedStreamIsNotThatOfAnotherWithItsHandle) {
  cudaStream_t foreign = nullptr, next = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&foreign, cudaStreamNonBlocking, 0), cudaSuccess);
  const Stream own;
  std::optional used{DeviceBuffer<int>{1000, own}};
  std::optional<Stream> borrowed{Stream::from_native(foreign, Ownership::borrow)};
  std::atomic_bool is_open{false};
  borrowed->launch_host_func([&is_open] { is_open.wait(false); });
  used->record_stream(*borrowed);
  used.reset();
  ASSERT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&next, cudaStreamNonBlocking, 0), cudaSuccess);
  EXPECT_EQ(next, foreign);
  borrowed.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_EQ(device_blocks(), 1U);
  is_open = true;
  is_open.notify_all();
  while (device_blocks() != 0) std::this_thread::yield();
  ASSERT_EQ(cudaStreamDestroy(next), cudaSuccess);
}

}  // namespace
