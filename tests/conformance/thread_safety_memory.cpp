// SPDX-License-Identifier: Apache-2.0
// docs/thread-safety.md: several threads use one buffer, pool or resource at a time.
#include <unistd.h>

#include <barrier>
#include <memory_resource>

#include "support.hpp"

namespace conformance::thread_safety_memory_cases {
constexpr int threads = 4;
using ThreadSafetyMemory = Conformance;

/// Writes its bytes through a stream into device memory and reads them back. Waits. Returns whether
/// they are the same.
bool keeps_bytes(StreamRef stream, DeviceSpan<unsigned char> there, unsigned seed) {
  const Bytes in = pattern(there.size(), seed);
  Bytes back(there.size());
  copy(stream, there, in);
  copy(stream, back, there);
  stream.synchronize();
  return back == in;
}

TEST_F(ThreadSafetyMemory, FourThreadsUseThePartsOfOneDeviceBuffer) {
  constexpr size_t part = 1000;
  const Stream owner;
  auto buffer = std::make_unique<DeviceBytes>(threads * part, owner);
  owner.synchronize();
  on_threads(threads, [&](int i) {
    const Stream own;
    for (unsigned round : range(100U)) {
      EXPECT_EQ(buffer->stream(), owner);
      EXPECT_EQ(buffer->size(), threads * part);
      const DeviceSpan<unsigned char> mine =
          buffer->span().subspan(static_cast<size_t>(i) * part, part);
      EXPECT_TRUE(keeps_bytes(round % 2 == 0 ? StreamRef{own} : StreamRef{owner}, mine,
                              round + static_cast<unsigned>(i)));
      record_stream(own, mine);
    }
  });
  buffer.reset();
  EXPECT_RUNS(owner);
}

/// No thread but its own reaches a thread's default stream, so each free is deferred.
TEST_F(ThreadSafetyMemory, FourThreadsDropBuffersOfEachOthersDefaultStreams) {
  std::array<std::optional<DeviceBytes>, threads> buffers;
  std::barrier all{threads};
  on_threads(threads, [&](int i) {
    const StreamRef own = thread_default();
    const auto mine = static_cast<size_t>(i), others = (mine + 1) % threads;
    repeat(300, [&] {
      fill(own, buffers[mine].emplace(1000U, own), 1);
      all.arrive_and_wait();
      buffers[others].reset();
      all.arrive_and_wait();
    });
    own.synchronize();
  });
}

TEST_F(ThreadSafetyMemory, FourThreadsReadOnePinnedBuffer) {
  constexpr size_t size = 2000;
  const Bytes expected = pattern(size);
  auto buffer = std::make_unique<PinnedBytes>(size);
  std::ranges::copy(expected, buffer->begin());
  on_threads(threads, [&](int) {
    const Stream own;
    DeviceBytes there{size, own};
    Bytes back(size);
    repeat(100, [&] {
      copy(own, there, *buffer);
      buffer->record_stream(own);
      record_stream(own, buffer->data() + 7);
      record_stream(own, *buffer);
      EXPECT_NE(buffer->device_pointer(), nullptr);
      copy(own, back, there);
      own.synchronize();
      EXPECT_SAME(back, *buffer);
    });
  });
  const size_t blocks = PinnedPool::statistics().blocks;
  buffer.reset();
  EXPECT_EQ(PinnedPool::statistics().blocks, blocks - 1);
}

TEST_F(ThreadSafetyMemory, AResourceIsSetBesideAllocations) {
  const DeviceResource resource{device()};
  const DeviceStatistics before = resource.statistics();
  const size_t limit = resource.limit();
  const bool has_pools = device().has_memory_pools();
  const Stream shared;
  std::atomic_int left{threads - 1};
  on_threads(threads, [&](int i) {
    if (i > 0) {
      for (unsigned round : range(100U)) {
        const size_t size = 300 * (1 + round % 5);
        auto* const block = static_cast<unsigned char*>(resource.allocate(shared, size));
        EXPECT_TRUE(keeps_bytes(shared, {block, size}, round));
        resource.deallocate(shared, block, size);
      }
      --left;
      return;
    }
    while (left > 0) {
      resource.set_limit(before.in_use + 100'000);
      EXPECT_EQ(resource.limit(), before.in_use + 100'000);
      const DeviceStatistics now = resource.statistics();
      EXPECT_LE(now.in_use, before.in_use + (threads - 1) * 1500);
      EXPECT_LE(now.blocks, before.blocks + (threads - 1));
      resource.reset_peak();
      if (has_pools) {
        resource.set_release_threshold(now.in_use);
        drop(resource.reserved());
      }
      resource.trim();
      resource.set_limit(limit);
    }
  });
  if (has_pools) resource.set_release_threshold(device().memory_info().total / 2);
  shared.synchronize();
  EXPECT_EQ(resource.statistics().in_use, before.in_use);
  EXPECT_EQ(resource.statistics().blocks, before.blocks);
  EXPECT_EQ(resource.limit(), limit);
}

TEST_F(ThreadSafetyMemory, APoolIsTrimmedBesideCopies) {
  const PinnedStatistics before = PinnedPool::statistics();
  const size_t limit = PinnedPool::limit();
  std::atomic_int left{threads - 1};
  std::pmr::memory_resource* const pinned = pinned_resource();
  on_threads(threads, [&](int i) {
    if (i == 0) {
      while (left > 0) {
        PinnedPool::set_limit(gib);
        PinnedPool::trim();
        Staging::trim();
        EXPECT_GT(Staging::options().workers, 0);
        EXPECT_GE(PinnedPool::statistics().misses, before.misses);
        PinnedPool::reset_peak();
        PinnedPool::set_limit(limit);
      }
      return;
    }
    const Stream own;
    DeviceBytes there{300 << 10, own};
    for (unsigned round : range(20U)) {
      const std::vector<int, PinnedAllocator<int>> numbers(2000 + round, static_cast<int>(round));
      void* const block = pinned->allocate(5000);
      std::memset(block, i, 5000);
      // 300 KiB of pageable memory: staged
      EXPECT_TRUE(keeps_bytes(own, there, round + static_cast<unsigned>(i)));
      copy_bytes(own, there.data(), block, 5000);
      EXPECT_EQ(get(own, there, 4999), i);
      pinned->deallocate(block, 5000);
      EXPECT_EQ(std::ranges::count(numbers, static_cast<int>(round)), 2000 + round);
    }
    --left;
  });
  EXPECT_EQ(PinnedPool::limit(), limit);
}

/// Memory that begins with a page, so that two parts of whole pages have no page in common.
class Pages {
 public:
  explicit Pages(size_t count) : memory_((count + 1) * size()) {
    void* begin = memory_.data();
    size_t space = memory_.size();
    begin_ = static_cast<unsigned char*>(std::align(size(), count * size(), begin, space));
  }
  static size_t size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  std::span<unsigned char> part(size_t first, size_t count) const {
    return {begin_ + first * size(), count * size()};
  }

 private:
  Bytes memory_;
  unsigned char* begin_;
};

TEST_F(ThreadSafetyMemory, FourThreadsPinMemoryThatOverlaps) {
  const Pages pages{threads + 1};
  std::barrier<> step{threads};
  on_threads(threads, [&](int i) {
    // all have one page in common
    const auto mine = pages.part(static_cast<size_t>(i) / 2, 3);
    repeat(20, [&] {
      HostRegistration pin;
      step.arrive_and_wait();
      pin = HostRegistration{mine.data(), mine.size()};
      EXPECT_EQ(pin.data(), mine.data());
      step.arrive_and_wait();
      for (const size_t place : {0UL, Pages::size(), mine.size() - 1})
        EXPECT_KIND(mine.data() + place, pinned);
      step.arrive_and_wait();
    });
    step.arrive_and_wait();
  });
  for (size_t i = 0; i <= threads; ++i) EXPECT_KIND(pages.part(i, 1).data(), pageable);
}

TEST_F(ThreadSafetyMemory, FourThreadsPinTheirOwnPagesAndReadOneRegistration) {
  const Pages pages{threads + 1};
  const auto common = pages.part(threads, 1);
  const HostRegistration shared{common.data(), common.size()};
  std::ranges::fill(common, 0x5a);
  on_threads(threads, [&](int i) {
    const Stream own;
    const auto mine = pages.part(static_cast<size_t>(i), 1);
    DeviceBytes there{mine.size(), own};
    repeat(40, [&] {
      const HostRegistration pin{mine.data(), mine.size()};
      EXPECT_KIND(mine.data(), pinned);
      EXPECT_EQ(shared.data(), common.data());
      EXPECT_NE(shared.device_pointer(), nullptr);
      copy_bytes(own, there.data(), shared.data(), shared.size_bytes());
      copy_bytes(own, mine.data(), there.data(), mine.size());
      own.synchronize();
      EXPECT_SAME(mine, common);
    });
  });
}

TEST_F(ThreadSafetyMemory, ASharedBufferGivesItsHandleToFourThreads) {
  constexpr size_t part = 1000;
  const Stream stream;
  SharedBuffer<unsigned char> buffer{threads * part};
  const IpcMemoryHandle handle = buffer.ipc_handle();
  on_threads(threads, [&](int i) {
    for (unsigned round : range(40U)) {
      EXPECT_EQ(buffer.ipc_handle(), handle);
      EXPECT_ERROR(invalid_argument, SharedBuffer<unsigned char>::from_ipc_handle(handle));
      EXPECT_TRUE(
          keeps_bytes(stream, buffer.span().subspan(static_cast<size_t>(i) * part, part), round));
    }
  });
}

TEST_F(ThreadSafetyMemory, FourThreadsAdviseOnOneManagedBuffer) {
  std::optional<ManagedBuffer<unsigned char>> memory;
  const auto code = code_of([&] { memory.emplace(8192); });
  SKIP_IF(code == errc::not_supported, "the device has no managed memory");
  const ManagedBuffer<unsigned char>& buffer = *memory;
  on_threads(threads, [&](int) {
    const Stream own;
    repeat(40, [&] {
      EXPECT_NO_ERROR(advise(buffer, MemoryAdvice::mostly_read, device()));
      EXPECT_NO_ERROR(prefetch(own, buffer, MemoryPlace::host()));
      EXPECT_KIND(buffer.data(), managed);
    });
    own.synchronize();
  });
}

}  // namespace conformance::thread_safety_memory_cases
