// SPDX-License-Identifier: Apache-2.0
// Device memory that is allocated and freed in stream order, also when streams are destroyed first
// (recorded_uses.cpp has what other streams use);
// resources, statistics and managed memory.

#include "support.hpp"

namespace conformance::device_memory_cases {
using DeviceMemory = Conformance;
using DeviceMemoryTwo = TwoDevices;

constexpr size_t size = mib;
using Buffer = DeviceBytes;

TEST_F(DeviceMemory, TheOtherStreamMayBeDestroyedFirst) {
  Stream owner;
  PinnedBytes result{size};
  {
    Buffer buffer{size, owner};
    fill_bytes(owner, buffer.data(), 5, size);
    Stream user;
    user.wait_stream(owner);
    copy(user, result, buffer);
    buffer.record_stream(user);
  }
  churn(owner, size);
  device().synchronize();
  EXPECT_ALL(result, 5);
}

TEST_F(DeviceMemory, ABufferInUseDoesNotDelayTheFreeingOfOthers) {
  SKIP_IF(!device().has_memory_pools(), "the device has no memory pools: freeing waits for it");
  Stream owner, held, other;
  const auto used_by = [&](const Stream& user) {
    auto buffer = std::make_unique<Buffer>(size, owner);
    fill_bytes(owner, buffer->data(), 1, size);
    user.wait_stream(owner);
    buffer->record_stream(user);
    return buffer;
  };
  auto first = used_by(held);
  std::vector<std::unique_ptr<Buffer>> rest;
  repeat(16, [&] { rest.push_back(used_by(other)); });
  owner.synchronize();
  Gate gate{held};
  first.reset();
  for (auto& buffer : rest) {
    fill_bytes(other, buffer->data(), 2, size);
    buffer.reset();
  }
  EXPECT_COMPLETES(other);
  EXPECT_COMPLETES(owner);
}

TEST_F(DeviceMemory, APerThreadStreamMayEndWithPendingWork) {
  constexpr unsigned threads = 3;
  std::vector<Bytes> sources, results(threads, Bytes(size));
  for (unsigned i : range(threads)) sources.push_back(pattern(size, i + 1));
  for (size_t i : range(threads))
    on_thread([&, here = device()] {
      const StreamRef stream = StreamRef::per_thread_default(here);
      Buffer buffer{size, stream};
      copy(stream, buffer, sources[i]);
      copy(stream, results[i], std::as_const(buffer));
    });
  device().synchronize();
  EXPECT_TRUE(results == sources);
}

TEST_F(DeviceMemory, TheOwnStreamMayBeDestroyedFirst) {
  Stream later;
  PinnedBytes result{size};
  Gate gate;
  {
    std::optional<Stream> owner;
    owner.emplace();
    Buffer buffer{size, *owner};
    fill_bytes(*owner, buffer.data(), 5, size);
    owner->synchronize();
    if (device().has_memory_pools()) gate.close_on(*owner);
    copy(*owner, result, buffer);
    owner.reset();
    EXPECT_FALSE(buffer.stream().is_valid());
  }
  gate.open();
  device().synchronize();
  churn(later, size);
  later.synchronize();
  EXPECT_ALL(result, 5);
}

TEST_F(DeviceMemory, ManyStreamsComeAndGoWithTheirBuffers) {
  const DeviceStatistics before = DeviceResource{device()}.statistics();
  for (int i : range(200)) {
    std::optional<Buffer> buffer;
    const Stream stream;
    buffer.emplace(4096UL, stream);
    fill_bytes(stream, buffer->data(), 1, 4096);
    if (i % 2 == 0) continue;  // in every second round the stream is destroyed before the buffer
    buffer.reset();
  }
  EXPECT_EQ(DeviceResource{device()}.statistics().in_use, before.in_use);
  EXPECT_EQ(DeviceResource{device()}.statistics().blocks, before.blocks);
}

TEST_F(DeviceMemory, AHostFunctionFreesABlockWithARecordedStream) {
  Stream owner, user, runs;
  PinnedBytes result{size};
  auto buffer = std::make_shared<Buffer>(size, owner);
  fill_bytes(owner, buffer->data(), 5, size);
  user.wait_stream(owner);
  copy(user, result, *buffer);
  buffer->record_stream(user);
  enqueue_drop(runs, std::move(buffer));
  runs.synchronize();
  churn(owner, size);
  owner.synchronize();
  user.synchronize();
  EXPECT_ALL(result, 5);
}

TEST_F(DeviceMemory, AnotherThreadsFreeWaitsForTheOwnersStream) {
  for (const bool other_user : {false, true}) {
    const Stream mine;
    PinnedBytes result{size};
    std::unique_ptr<Buffer> buffer;
    std::latch made{1}, freed{1};
    Gate gate;
    std::thread owner{[&] {
      const StreamRef stream = thread_default();
      buffer = other_user ? std::make_unique<Buffer>(size, mine)
                          : std::make_unique<Buffer>(size, stream);
      stream.wait_stream(mine);
      gate.close_on(stream);
      fill_bytes(stream, buffer->data(), 5, size);
      copy(stream, result, *buffer);
      if (other_user) buffer->record_stream(stream);
      made.count_down();
      freed.wait();
      gate.open_and_wait(stream);
    }};
    made.wait();
    {
      const Graph graph = capture(mine, [&] {
        enqueue_nothing(mine);
        buffer.reset();  // on this thread, the work is behind the gate
        enqueue_nothing(mine);
      });
      EXPECT_NODES(graph, 2U);
    }
    for (int i : range(20)) {
      const Stream user;
      Buffer churn{size, user};
      fill_bytes(user, churn.data(), 9, size);
      if (i == 5) freed.count_down();
    }
    owner.join();
    EXPECT_ALL(result, 5);
  }
}

TEST_F(DeviceMemory, TrimGivesUnusedMemoryBack) {
  const Stream stream;
  {
    const Buffer used{size, stream};
  }
  Buffer kept{size, stream};
  stream.synchronize();
  DeviceResource{device()}.trim();
  EXPECT_EQ(DeviceResource{device()}.statistics().blocks, 1U);
  fill_bytes(stream, kept.data(), 1, size);
  stream.synchronize();
}

TEST_F(DeviceMemory, StatisticsAreExact) {
  Stream stream;
  const DeviceStatistics before = DeviceResource{device()}.statistics();
  {
    Buffer a{1000, stream}, b{size, stream};
    const DeviceStatistics now = DeviceResource{device()}.statistics();
    EXPECT_EQ(now.in_use, before.in_use + 1000 + size);
    EXPECT_EQ(now.blocks, before.blocks + 2);
    EXPECT_GE(now.peak, now.in_use);
    b = std::move(a);
    EXPECT_EQ(DeviceResource{device()}.statistics().in_use, before.in_use + 1000);
  }
  EXPECT_EQ(DeviceResource{device()}.statistics().in_use, before.in_use);
  EXPECT_GE(DeviceResource{device()}.statistics().peak, before.in_use + 1000 + size);
  EXPECT_ERROR(out_of_memory, Buffer{huge / 2, stream});
  EXPECT_EQ(DeviceResource{device()}.statistics().in_use, before.in_use);
}

TEST_F(DeviceMemory, ResourceAllocatesAndFreesOnAnyOfTheDevicesStreams) {
  const DeviceResource resource;
  EXPECT_EQ(resource.device(), device());
  EXPECT_TRUE(resource == DeviceResource{device()});
  Stream first, second;
  PinnedBytes result{size};
  void* const memory = resource.allocate(first, size);
  EXPECT_KIND(memory, device);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % DeviceResource::max_alignment, 0U);
  fill_bytes(first, memory, 6, size);
  second.wait_stream(first);
  copy_bytes(second, result.data(), memory, size);
  resource.deallocate(second, memory, size);
  churn(second, size);
  second.synchronize();
  EXPECT_ALL(result, 6);
  EXPECT_EQ(resource.allocate(first, 0), nullptr);
  resource.deallocate(first, nullptr, 0);
  EXPECT_ERROR(invalid_argument, resource.allocate(first, 16, 3));
  EXPECT_ERROR(invalid_argument, resource.allocate(first, 16, 512));
}

TEST_F(DeviceMemoryTwo, ResourceRefusesAnotherDevicesStream) {
  Stream stream{second};
  EXPECT_ERROR(invalid_argument, DeviceResource{first}.allocate(stream, 16));
}

TEST_F(DeviceMemory, ThePoolKeepsWhatWasFreedUntilItIsTrimmedOrHasAThreshold) {
  SKIP_IF(streams_are_threads() || !device().has_memory_pools(), "nothing keeps freed memory");
  constexpr size_t large = 64 * mib;
  const Stream stream;
  const DeviceResource resource{device()};
  drop(DeviceBuffer<char>{1, stream});  // the pool is made
  stream.synchronize();
  resource.trim();
  const size_t held = resource.reserved(), free = device().memory_info().free;
  const auto held_after_use = [&] {
    drop(DeviceBuffer<char>{large, stream});
    stream.synchronize();
    return resource.reserved();
  };
  EXPECT_GE(held_after_use(), held + large);
  EXPECT_EQ(device().memory_info().free, free) << "allocations get what the pool keeps";
  resource.trim();
  EXPECT_EQ(resource.reserved(), held);
  resource.set_release_threshold(0);
  EXPECT_EQ(held_after_use(), held);
  resource.set_release_threshold(device().memory_info().total / 2);
}

TEST_F(DeviceMemory, ReleaseThresholdIsSetWhereThereIsAPool) {
  const auto code = code_of([&] { DeviceResource{device()}.set_release_threshold(64 * mib); });
  EXPECT_TRUE(code == nothing_thrown || code == errc::not_supported) << code.message();
  if (code == nothing_thrown)
    DeviceResource{device()}.set_release_threshold(device().memory_info().total / 2);
  if (!streams_are_threads()) return;
  EXPECT_EQ(code, nothing_thrown) << "the host keeps no freed memory, so it accepts any threshold";
}

TEST_F(DeviceMemory, ManagedMemoryIsSharedByHostAndDevice) {
  Stream stream;
  std::unique_ptr<ManagedBuffer<int>> memory;
  const auto code = code_of([&] { memory = std::make_unique<ManagedBuffer<int>>(1000); });
  SKIP_IF(code == errc::not_supported, "the device has no managed memory");
  ASSERT_EQ(code, nothing_thrown);
  EXPECT_KIND(memory->data(), managed);
  fill(stream, *memory, 7);
  stream.synchronize();
  EXPECT_EQ((*memory)[999], 7);
  count_from(*memory, 0);
  EXPECT_EQ(read_back(stream, *memory)[999], 999);
  ManagedBuffer<int> moved{std::move(*memory)};
  EXPECT_EQ(memory->data(), nullptr);
  EXPECT_EQ(moved.size(), 1000U);
  EXPECT_ERROR(out_of_memory, ManagedBuffer<double>(huge));
}

}  // namespace conformance::device_memory_cases
