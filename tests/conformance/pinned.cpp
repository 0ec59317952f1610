// SPDX-License-Identifier: Apache-2.0
// Pinned memory and its pool. A test recognises a block by its address.
#include <sys/mman.h>
#include <unistd.h>

#include <memory_resource>

#include "support.hpp"

namespace conformance::pinned_cases {

constexpr size_t size = 10000;  // a block of 16 KiB
constexpr size_t block = 16 * kib;
using Buffer = PinnedBytes;

/// Each test begins and ends with an empty cache, so that no test gets blocks of another one. While
/// a gate is closed, the pool must neither allocate from the runtime nor free to it, because both
/// may wait for the device. allow() prevents that.
class PinnedMemory : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    // Another thread may have freed a block that this thread's default stream has used. The first
    // call only records an event there.
    PinnedPool::trim();
    for (const Device each : all_devices()) each.synchronize();
    PinnedPool::trim();
    found_ = PinnedPool::statistics();
  }
  void TearDown() override {
    PinnedPool::set_limit(huge);
    if (!IsSkipped()) PinnedPool::trim();
    Conformance::TearDown();
  }
  /// The statistics minus those at the start of the test.
  PinnedStatistics since() const {
    PinnedStatistics now = PinnedPool::statistics();
    now.in_use -= found_.in_use;
    now.cached -= found_.cached;
    now.blocks -= found_.blocks;
    now.cached_blocks -= found_.cached_blocks;
    now.hits -= found_.hits;
    now.misses -= found_.misses;
    now.releasing -= found_.releasing;
    return now;
  }

  /// Fills the pool with `count` idle blocks of `size` bytes, and sets the limit so that the pool
  /// cannot allocate more.
  static void allow(size_t count) {
    std::vector<Buffer> all;
    while (all.size() < count) all.emplace_back(size);
    all.clear();
    allow_more(0);
  }
  /// Sets the limit so many bytes above what the pool has.
  static void allow_more(size_t bytes) {
    const PinnedStatistics now = PinnedPool::statistics();
    PinnedPool::set_limit(now.in_use + now.cached + bytes);
  }
  /// Whether the block is one of those that the pool can hand out now.
  static bool can_get(const void* address) {
    std::vector<Buffer> all;
    while (code_of([&] { all.emplace_back(size); }) != errc::out_of_memory && all.size() < 100) {
    }
    return std::ranges::any_of(all, [&](const Buffer& buffer) { return buffer.data() == address; });
  }

  /// Whether the pool can hand out so many blocks now. By the limit: a block may go back to the
  /// runtime, and come as another one.
  static bool has_room(size_t count = 1) {
    std::vector<Buffer> all;
    return code_of([&] {
             while (all.size() < count) all.emplace_back(size);
           }) == nothing_thrown;
  }

  /// Expects the block to stay until the gate opens and `user` is complete.
  template <class User>
  static void expect_kept_behind(Gate& gate, const User& user, const void* address) {
    EXPECT_FALSE(can_get(address));
    gate.open_and_wait(user);
    EXPECT_TRUE(can_get(address));
  }

 private:
  PinnedStatistics found_{};
};

/// The block that an allocation of that size gets now. The block is freed again.
const void* next_block(size_t bytes = size) {
  const Buffer buffer(bytes);
  return buffer.data();
}

TEST_F(PinnedMemory, WriteCombinedMemoryIsPooledApart) {
  Stream stream;
  DeviceBytes there{size, stream};
  const void* combined = nullptr;
  {
    Buffer source{size, {.write_combined = true}};
    combined = source.data();
    std::memset(source.data(), 7, size);
    copy(stream, there, source);
    EXPECT_ALL(read_back(stream, there), 7);
  }
  EXPECT_NE(next_block(), combined);
  stream.synchronize();  // also completes the event of the freed block
  const Buffer again{size, {.write_combined = true}};
  EXPECT_EQ(again.data(), combined);
}

TEST_F(PinnedMemory, ZeroBytesCanBeAllocated) {
  const Buffer none{0};
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.device_pointer(), nullptr);
  Stream stream;
  none.record_stream(stream);
  std::pmr::memory_resource* const resource = pinned_resource();
  void* const first = resource->allocate(0);
  void* const second = resource->allocate(0);
  EXPECT_NE(first, second);
  resource->deallocate(first, 0);
  resource->deallocate(second, 0);
}

TEST_F(PinnedMemory, TooLargeSizesThrowBadAlloc) {
  EXPECT_THROW(drop(pinned_resource()->allocate(huge / 2)), std::bad_alloc);
  EXPECT_THROW((std::vector<int, PinnedAllocator<int>>(huge / 64)), std::bad_alloc);
}

TEST_F(PinnedMemory, BlocksAreAlignedAtSizesUpTo4097) {
  for (size_t bytes = 1; bytes <= 4097; bytes += bytes < 64 ? 1 : 61) {
    const Buffer one(bytes), two(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(one.data()) % 256, 0U) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(two.data()) % 256, 0U) << bytes;
  }
  void* const aligned = pinned_resource()->allocate(100, 256);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % 256, 0U);
  pinned_resource()->deallocate(aligned, 100, 256);
}

/// The standard's pools ask for chunks that are aligned to their blocks.
TEST_F(PinnedMemory, TheResourceKeepsEachAlignment) {
  for (size_t alignment = 1; alignment <= mib; alignment *= 2) {
    void* const aligned = pinned_resource()->allocate(300, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % alignment, 0U);
    pinned_resource()->deallocate(aligned, 300, alignment);
    std::pmr::synchronized_pool_resource pool{{.largest_required_pool_block = mib},
                                              pinned_resource()};
    pool.deallocate(pool.allocate(alignment, 8), alignment, 8);
  }
  EXPECT_EQ(since().blocks, 0U);
  EXPECT_ERROR(out_of_memory, pinned_resource()->allocate(huge / 4, 8 * kib));
}

TEST_F(PinnedMemory, PointersAreReportedAsPinnedOrPageable) {
  EXPECT_KIND(nullptr, pageable);
  const Buffer buffer{size};
  EXPECT_KIND(buffer.data(), pinned);
  EXPECT_KIND(buffer.data() + size - 1, pinned);
  std::pmr::vector<int> numbers(100, pinned_resource());
  EXPECT_KIND(numbers.data(), pinned);
  EXPECT_KIND(&numbers, pageable);
  std::vector<int, PinnedAllocator<int>> others(100);
  EXPECT_KIND(others.data(), pinned);
}

TEST_F(PinnedMemory, AFreedBlockIsReused) {
  const void* const first = next_block();
  EXPECT_EQ(next_block(), first);
  EXPECT_EQ(next_block(block), first) << "the largest size of the class";
  EXPECT_EQ(next_block(block / 2 + 1), first) << "the smallest";
  void* const by_resource = pinned_resource()->allocate(size);
  EXPECT_EQ(by_resource, first);
  pinned_resource()->deallocate(by_resource, size);
}

/// The operations through which a stream uses a block. Each is a test of its own.
enum class Way { from, to, bytes, last_byte, plane, fill, pattern, batch, between_two, by_hand };
class PinnedMemoryWays : public PinnedMemory, public testing::WithParamInterface<Way> {
 protected:
  void use(StreamRef stream, Buffer& buffer, DeviceBytes& there, Buffer& other) const {
    switch (GetParam()) {
      case Way::from:
        copy(stream, there, buffer);
        break;
      case Way::to:
        copy(stream, buffer, there);
        break;
      case Way::bytes:
        copy_bytes(stream, there.data(), buffer.data(), size);
        break;
      case Way::last_byte:
        copy_bytes(stream, there.data(), buffer.data() + size - 1, 1);
        break;
      case Way::plane:
        copy_2d(stream, there.data(), 100, buffer.data(), 100, 50, 100);
        break;
      case Way::fill:
        fill_bytes(stream, buffer.data(), 3, size);
        break;
      case Way::pattern:
        fill(stream, std::span{reinterpret_cast<uint32_t*>(buffer.data()), 16}, 0x01020304U);
        break;
      case Way::batch: {
        const std::array operations{
            CopyOperation{there.data(), buffer.data(), size / 2},
            CopyOperation{there.data() + size / 2, buffer.data() + size / 2, size / 2}};
        copy_batch(stream, operations);
        break;
      }
      case Way::between_two:
        copy(stream, other, buffer);
        break;
      case Way::by_hand:
        buffer.record_stream(stream);
        break;
    }
  }
};

TEST_P(PinnedMemoryWays, ABlockIsReusedOnlyOnceItsUseIsComplete) {
  Stream stream;
  DeviceBytes there{size, stream};
  Buffer other{size};
  const void* held = nullptr;
  stream.synchronize();
  allow(3);
  Gate gate{stream};
  {
    Buffer buffer{size};
    held = buffer.data();
    use(stream, buffer, there, other);
  }
  expect_kept_behind(gate, stream, held);
}
INSTANTIATE_TEST_SUITE_P(Uses, PinnedMemoryWays,
                         testing::Values(Way::from, Way::to, Way::bytes, Way::last_byte, Way::plane,
                                         Way::fill, Way::pattern, Way::batch, Way::between_two,
                                         Way::by_hand));

TEST_F(PinnedMemory, BlocksOfAnotherThreadsStreamDoNotPileUp) {
  constexpr size_t bytes = 128 * kib;
  const size_t before = PinnedPool::statistics().cached;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<PinnedBytes> handed;
  bool over = false;
  std::thread user{[&, here = device()] {
    const StreamRef stream = StreamRef::per_thread_default(here);
    DeviceBytes there{bytes, stream};
    std::unique_lock lock{mutex};
    for (;;) {
      changed.wait(lock, [&] { return handed || over; });
      if (over) return;
      copy(stream, there, std::as_const(*handed));
      stream.synchronize();
      PinnedBytes used = std::move(*handed);
      handed.reset();
      changed.notify_all();
      lock.unlock();
      on_thread([&] {
        const PinnedBytes dropped = std::move(used);
      });  // on a thread that cannot use this thread's default stream
      lock.lock();
    }
  }};
  for (int round = 0; round < 300; ++round) {
    std::unique_lock lock{mutex};
    changed.wait(lock, [&] { return !handed; });
    handed.emplace(bytes);
    changed.notify_all();
  }
  {
    std::unique_lock lock{mutex};
    changed.wait(lock, [&] { return !handed; });
    over = true;
    changed.notify_all();
  }
  user.join();
  EXPECT_LE(PinnedPool::statistics().cached, before + 8 * bytes);
}

TEST_F(PinnedMemory, ABlockUsedByTwoStreamsIsReusedAfterBoth) {
  Stream first, second;
  DeviceBytes there{size, first}, too{size, second};
  const void* held = nullptr;
  first.synchronize();
  second.synchronize();
  allow(3);
  Gate gate{second};
  {
    Buffer buffer{size};
    held = buffer.data();
    copy(first, there, buffer);
    copy(second, too, buffer);
    copy(first, there, buffer);
  }
  first.synchronize();
  expect_kept_behind(gate, second, held);
}

class PinnedMemoryTwo : public PinnedMemory {
 protected:
  void SetUp() override {
    SKIP_IF(Device::count() < 2, "needs two devices");
    PinnedMemory::SetUp();
  }
};

TEST_F(PinnedMemoryTwo, ABlockUsedOnAnotherDeviceIsReusedAfterItsStream) {
  Stream stream{Device{1}};
  DeviceBytes there{size, stream};
  const void* held = nullptr;
  stream.synchronize();
  allow(2);
  const DeviceGuard with{Device{0}};
  Gate gate{stream};
  {
    Buffer buffer{size};
    held = buffer.data();
    copy(stream, there, buffer);
  }
  EXPECT_CURRENT_DEVICE(Device{0});
  expect_kept_behind(gate, stream, held);
}

TEST_F(PinnedMemory, ARecordedUseLastsUntilTheBlockIsFreed) {
  allow(2);
  for (const bool by_pointer : {false, true}) {
    SCOPED_TRACE(by_pointer ? "by a pointer into the block" : "by the buffer");
    Stream stream;
    auto buffer = std::make_unique<Buffer>(size);
    const auto* const held = buffer->data();
    if (by_pointer)
      record_stream(stream, held + size / 2);
    else
      buffer->record_stream(stream);
    Gate gate{stream};  // later than the record
    buffer.reset();
    expect_kept_behind(gate, stream, held);
  }
}

TEST_F(PinnedMemory, RecordStreamRefusesForeignPointers) {
  Stream stream;
  int variable = 0;
  Ints ordinary(100);
  const void* const freed = next_block();
  for (const void* pointer :
       {static_cast<const void*>(nullptr), static_cast<const void*>(&variable),
        static_cast<const void*>(ordinary.data()), freed})
    EXPECT_ERROR(invalid_argument, record_stream(stream, pointer));
  const Buffer buffer{size};
  // If the runtime allocated another block right behind this one, the address belongs to that
  // block.
  if (pointer_info(buffer.data() + block).kind == MemoryKind::pageable) {
    EXPECT_ERROR(invalid_argument, record_stream(stream, buffer.data() + block))
        << "one past the end";
  }
}

TEST_F(PinnedMemory, ABlockOutlivesTheStreamThatUsedIt) {
  const void* held = nullptr;
  allow(2);
  Gate gate;
  {
    Buffer buffer{size};
    held = buffer.data();
    {
      Stream stream;
      gate.close_on(stream);
      fill_bytes(stream, buffer.data(), 1, size);
    }
    EXPECT_TRUE(gate.reached());
  }
  expect_kept_behind(gate, device(), held);
}

// A host function cannot mark the end of a foreign stream, and afterwards that stream belongs to
// other code. So the library waits for the devices.
TEST_F(PinnedMemory, ABlockIsReusedAfterIdleDevicesIfTheEndOfItsStreamWasNotMarked) {
  Stream other, busy;
  const native::stream foreign = Stream{}.release();
  allow(2);
  {
    Buffer buffer{size};
    auto wrapper = std::make_shared<Stream>(borrow(foreign));
    fill_bytes(*wrapper, buffer.data(), 1, size);
    enqueue_drop(other, std::move(wrapper));
    other.synchronize();
  }
  Gate gate{busy};
  EXPECT_FALSE(has_room(2)) << "the end of its stream is not known";
  gate.open();
  EXPECT_TRUE(eventually([] { return has_room(2); }));
  drop(take(foreign));
}

TEST_F(PinnedMemory, ACopyMarksWhatAnotherThreadDroppedOfAThreadsDefaultStream) {
  DeviceBytes there{size};
  device().default_stream().synchronize();
  std::optional dropped{Buffer{size}};
  const Buffer other{size};
  allow(0);
  std::latch used{1}, is_dropped{1}, marked{1}, may_end{1};
  std::thread thread{[&] {
    const StreamRef own = StreamRef::per_thread_default(device());
    copy(own, there, *dropped);
    used.count_down();
    is_dropped.wait();
    copy(own, there, other);
    marked.count_down();
    may_end.wait();
    own.synchronize();
  }};
  used.wait();
  dropped.reset();
  is_dropped.count_down();
  marked.wait();
  EXPECT_TRUE(eventually([] { return has_room(); }));
  may_end.count_down();
  thread.join();
}

TEST_F(PinnedMemory, ABoundedWaitFreesWhatAnotherThreadDropsMeanwhile) {
  DeviceBytes there{size};
  device().default_stream().synchronize();
  std::optional<Buffer> dropped{std::in_place, size};
  allow(0);
  Gate gate;
  std::latch used{1}, waited{1}, may_end{1};
  std::thread thread{[&] {
    const StreamRef own = StreamRef::per_thread_default(device());
    gate.close_on(own);
    copy(own, there, *dropped);
    used.count_down();
    EXPECT_COMPLETES(own);
    waited.count_down();
    may_end.wait();
  }};
  used.wait();
  std::this_thread::sleep_for(20ms);  // until the thread waits
  dropped.reset();
  gate.open();
  waited.wait();
  EXPECT_TRUE(eventually([] { return has_room(); }));
  may_end.count_down();
  thread.join();
}

TEST_F(PinnedMemory, AWaitForTheDeviceHoldsNothingThatAThreadsOwnWaitFrees) {
  DeviceBytes there{size};
  const Stream blocked;
  device().default_stream().synchronize();
  std::optional<Buffer> dropped{std::in_place, size};
  allow(0);
  Gate gate;
  std::latch used{1}, is_dropped{1}, waited{1}, may_end{1};
  std::thread thread{[&] {
    const StreamRef own = StreamRef::per_thread_default(device());
    copy(own, there, *dropped);
    used.count_down();
    is_dropped.wait();
    own.synchronize();
    waited.count_down();
    may_end.wait();
  }};
  used.wait();
  dropped.reset();
  gate.close_on(blocked);
  EXPECT_FALSE(device().synchronize_for(20ms));  // a thread of the library still waits
  is_dropped.count_down();
  waited.wait();
  EXPECT_TRUE(eventually([] { return has_room(); }));
  gate.open();
  may_end.count_down();
  thread.join();
}

TEST_F(PinnedMemory, ManyDestroyedStreamsThatUsedABlockLeakNothing) {
  Buffer buffer{size};
  const auto rounds = [&](int count) {
    for (int i : range(count)) {
      const Stream stream;
      fill_bytes(stream, buffer.data() + i % 50, 1, 1);
      if (i % 50 == 49) device().synchronize();
    }
  };
  const size_t pooled = live_objects().pooled_events;
  // A leak makes each 2,000 rounds grow. The race checker, if it is on, grows until it forgets,
  // after as many operations as it knew then.
  size_t before = 0, after = 0;
  for (int attempt = 0; attempt < 6 && (attempt == 0 || after >= before + heap_slack); ++attempt) {
    before = heap_in_use();
    rounds(2000);
    after = heap_in_use();
  }
  EXPECT_LT(after, before + heap_slack);
  EXPECT_LE(live_objects().pooled_events, pooled + 64);
}

TEST_F(PinnedMemory, ABlockOutlivesThePerThreadStreamThatUsedIt) {
  const void* held = nullptr;
  allow(2);
  {
    Buffer buffer{size};
    held = buffer.data();
    on_thread([&] { fill_bytes(thread_default(), buffer.data(), 1, size); });
  }
  device().synchronize();
  EXPECT_TRUE(can_get(held));
}

TEST_F(PinnedMemory, ABlockUsedByAnotherThreadsDefaultStreamIsReusedAfterIt) {
  allow(2);
  std::latch freed{1}, used{1};
  const void* held = nullptr;
  auto buffer = std::make_unique<Buffer>(size);
  held = buffer->data();
  std::thread owner{[&] {
    const StreamRef stream = thread_default();
    fill_bytes(stream, buffer->data(), 1, size);
    used.count_down();
    freed.wait();
    stream.synchronize();
  }};
  used.wait();
  buffer.reset();
  EXPECT_FALSE(can_get(held)) << "only the other thread can ask whether its default stream is done";
  freed.count_down();
  owner.join();
  device().synchronize();
  EXPECT_TRUE(can_get(held));
}

TEST_F(PinnedMemory, TrimFreesIdleBlocksOnly) {
  Buffer stays{size};
  std::memset(stays.data(), 5, size);
  next_block(size);
  next_block(2 * block);
  next_block(mib);
  EXPECT_EQ(since().cached_blocks, 3U);
  EXPECT_EQ(since().cached, block + 2 * block + mib);
  PinnedPool::trim();
  EXPECT_EQ(since().cached_blocks, 0U);
  EXPECT_EQ(since().cached, 0U);
  EXPECT_EQ(since().blocks, 1U);
  EXPECT_ALL(stays, 5);
}

TEST_F(PinnedMemory, TrimKeepsABlockWithAPendingCopy) {
  Stream stream;
  DeviceBytes there{size, stream};
  stream.synchronize();
  Gate gate{stream};
  {
    Buffer source{size};
    std::memset(source.data(), 9, size);
    copy(stream, there, source);
  }
  PinnedPool::trim();
  EXPECT_EQ(since().cached_blocks, 1U);
  gate.open();
  EXPECT_EQ(read_back(stream, there), Bytes(size, 9));
  PinnedPool::trim();
  EXPECT_EQ(since().cached_blocks, 0U);
}

TEST_F(PinnedMemory, StatisticsAreExact) {
  {
    const Buffer one{size}, two{1}, three{block + 1};
    const PinnedStatistics s = since();
    EXPECT_EQ(s.blocks, 3U);
    EXPECT_EQ(s.in_use, block + (4 * kib) + 2 * block);
    EXPECT_EQ(s.cached, 0U);
    EXPECT_EQ(s.misses, 3U);
    EXPECT_EQ(s.hits, 0U);
    EXPECT_GE(s.peak, s.in_use);
  }
  PinnedStatistics s = since();
  EXPECT_EQ(s.blocks, 0U);
  EXPECT_EQ(s.in_use, 0U);
  EXPECT_EQ(s.cached, block + (4 * kib) + 2 * block);
  EXPECT_EQ(s.cached_blocks, 3U);
  next_block();
  s = since();
  EXPECT_EQ(s.hits, 1U);
  EXPECT_EQ(s.misses, 3U);
  PinnedPool::trim();
  s = since();
  EXPECT_EQ(s.cached, 0U);
  EXPECT_EQ(s.cached_blocks, 0U);
}

TEST_F(PinnedMemory, ABlockTooLargeToBeKeptIsCountedUntilItsUseIsComplete) {
  constexpr size_t large = gib + 1;
  Stream stream;
  Buffer buffer;
  if (code_of([&] { buffer = Buffer(large); }) == errc::out_of_memory)
    GTEST_SKIP() << "there is not so much memory";
  Gate gate{stream};
  fill_bytes(stream, buffer.data(), 1, 1);
  buffer = {};
  EXPECT_EQ(since().cached_blocks, 1U);
  EXPECT_GT(since().cached, large);
  gate.open_and_wait(stream);
  EXPECT_EVENTUALLY(since().cached_blocks == 0 && since().releasing == 0);
  EXPECT_EQ(since().cached, 0U);
  EXPECT_EQ(since().blocks, 0U);
}

TEST_F(PinnedMemory, ABlockIsReusedForItsSizeClassOnly) {
  const void* const small = next_block(size);
  Buffer large{block + 1};
  EXPECT_NE(static_cast<const void*>(large.data()), small);
  std::memset(large.data(), 1, large.size());
  Buffer tiny{100};
  EXPECT_NE(static_cast<const void*>(tiny.data()), small);
  std::memset(tiny.data(), 1, tiny.size());
  EXPECT_EQ(next_block(size), small);
}

TEST_F(PinnedMemory, AboveAMebibyteABlockIsAtMostAQuarterLargerThanAsked) {
  const auto takes = [&](size_t bytes) {
    const Buffer one{bytes};
    return since().in_use;
  };
  EXPECT_EQ(takes(mib), mib);
  EXPECT_EQ(takes(mib + 1), mib + mib / 4);
  EXPECT_EQ(takes(2 * mib), 2 * mib);
  EXPECT_EQ(takes(5 * mib), 5 * mib);
  EXPECT_EQ(takes(65 * mib), 80 * mib);
  PinnedPool::trim();
  const void* const seven = next_block(6 * mib + 1);
  EXPECT_EQ(next_block(4 * mib + 1), seven) << "a larger block of the same doubling serves as well";
  const Buffer small{4 * mib};
  EXPECT_NE(static_cast<const void*>(small.data()), seven);
}

TEST_F(PinnedMemory, DoubleFreeIsRefused) {
  std::pmr::memory_resource* const resource = pinned_resource();
  void* const memory = resource->allocate(size);
  resource->deallocate(memory, size);
  EXPECT_ERROR(invalid_argument, resource->deallocate(memory, size));
  EXPECT_EQ(since().cached_blocks, 1U);
  const Buffer one{size}, two{size};
  EXPECT_NE(one.data(), two.data());
}

TEST_F(PinnedMemory, MovedBuffersFreeOnce) {
  Buffer a{size};
  const void* const address = a.data();
  Buffer b{std::move(a)};
  Buffer c{size};
  c = std::move(b);
  Buffer d{std::move(c)};
  EXPECT_EQ(d.data(), address);
  EXPECT_EQ(since().blocks, 1U);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(c.data(), nullptr);
}

TEST_F(PinnedMemory, FreeOfAForeignPointerIsRefused) {
  std::pmr::memory_resource* const resource = pinned_resource();
  Ints ordinary(100);
  int variable = 0;
  void* const memory = resource->allocate(size);
  // No null pointer: the standard library declares the argument as non-null.
  for (void* pointer : {static_cast<void*>(&variable), static_cast<void*>(ordinary.data()),
                        static_cast<void*>(static_cast<char*>(memory) + 1)})
    EXPECT_ERROR(invalid_argument, resource->deallocate(pointer, 4));
  EXPECT_EQ(since().blocks, 1U);
  resource->deallocate(memory, size);
}

TEST_F(PinnedMemory, ASteadyLoopUsesABoundedNumberOfBlocks) {
  const int rounds = long_tests() ? 100'000 : 5000;
  Stream stream;
  DeviceBytes there{size, stream};
  const auto round = [&] {
    Buffer buffer{size};
    copy(stream, there, buffer);
  };
  repeat(100, round);
  for (int i : range(rounds)) {
    round();
    if (i % 64 == 0) stream.synchronize();
  }
  stream.synchronize();
  EXPECT_LE(since().misses, 200U);
  EXPECT_LE(since().cached, 200 * block);
}

TEST_F(PinnedMemory, AFailedAllocationEmptiesTheCacheAndIsRetried) {
  next_block(size);
  next_block(mib);
  EXPECT_EQ(since().cached_blocks, 2U);
  EXPECT_ERROR(out_of_memory, Buffer(huge / 2));
  EXPECT_EQ(since().cached_blocks, 0U);
  EXPECT_EQ(since().in_use, 0U);
  // An allocation that fits only after the cache is emptied. A limit stands for a machine without
  // free memory.
  next_block(mib);
  allow_more(0);
  EXPECT_NO_ERROR(const Buffer other(512 * kib));
  PinnedPool::set_limit(huge);
  EXPECT_EQ(since().cached, 512 * kib);
}

TEST_F(PinnedMemory, TheLimitIsRespectedAndFreedBytesCountAgain) {
  const PinnedStatistics now = PinnedPool::statistics();
  PinnedPool::set_limit(now.in_use + now.cached + 4 * block);
  EXPECT_EQ(PinnedPool::limit(), now.in_use + now.cached + 4 * block);
  {
    std::vector<Buffer> buffers;
    repeat(4, [&] { buffers.emplace_back(size); });
    EXPECT_ERROR(out_of_memory, Buffer{size});
    EXPECT_ERROR(out_of_memory, Buffer{1});
    buffers.pop_back();
    EXPECT_NO_ERROR(const Buffer tiny{1}) << "a cached block makes room";
    EXPECT_NO_ERROR(const Buffer back{size});
  }
  EXPECT_NO_ERROR(const Buffer all{4 * block});
  EXPECT_ERROR(out_of_memory, Buffer{4 * block + 1});
  PinnedPool::set_limit(now.in_use + now.cached);
  EXPECT_EQ(since().cached, 0U) << "a lower limit gives cached blocks back";
  PinnedPool::set_limit(huge);
  next_block();
}

TEST_F(PinnedMemory, ALowerLimitHoldsForBlocksThatAreFreedLater) {
  const Stream stream;
  std::optional<Buffer> idle{size}, used{size};
  PinnedPool::set_limit(PinnedPool::statistics().in_use - 2 * block);
  Gate gate{stream};
  fill(stream, *used, 'x');
  used.reset();
  idle.reset();  // returns at once: to give the block back would wait for the device
  gate.open_and_wait(stream);
  EXPECT_ERROR(out_of_memory, Buffer{size});
  EXPECT_EQ(since().cached, 0U);
}

TEST_F(PinnedMemory, WhatGoesBackCountsUntilItIsThere) {
  const Stream stream;
  allow(2);
  Gate gate{stream};
  ASSERT_TRUE(gate.reached());
  PinnedPool::trim();
  const PinnedStatistics now = since();
  EXPECT_EQ(now.cached, 0U);
  EXPECT_TRUE(now.releasing == 0 || now.releasing == 2 * block) << now.releasing;
  const auto allocate = [] { const Buffer both{2 * size}; };
  if (now.releasing != 0) {
    EXPECT_EQ(code_of(allocate), errc::out_of_memory) << "the limit is about what is pinned";
  }
  gate.open_and_wait(stream);
  EXPECT_EQ(code_of(allocate), nothing_thrown);
  EXPECT_EVENTUALLY(since().releasing == 0);
}

TEST_F(PinnedMemory, ALimitThatIsRefusedChangesNothing) {
  const Stream stream;
  std::error_code code;
  const size_t before = PinnedPool::limit();
  stream.launch_host_func([&] { code = code_of([] { PinnedPool::set_limit(0); }); });
  stream.synchronize();
  EXPECT_EQ(code, errc::not_permitted);
  EXPECT_EQ(PinnedPool::limit(), before);
}

TEST_F(PinnedMemory, ABlockFreedOnAnIdleStreamIsFreeAtOnce) {
  const Stream stream;
  const auto use = [&] {
    Buffer buffer{size};
    fill(stream, buffer, 'x');
    stream.synchronize();
  };
  use();
  EXPECT_EVENTUALLY((PinnedPool::trim(), since().cached == 0));  // It waits for 0.1 s at most.
  allow_more(block);
  repeat(100, [&] { EXPECT_EQ(code_of(use), nothing_thrown); });
}

TEST_F(PinnedMemory, BlocksThatHostFunctionsDropDoNotPileUp) {
  constexpr size_t depth = 4;
  Stream stream;
  DeviceBytes there{size, stream};
  std::array<Event, depth> ends;
  for (size_t i : range(1000UL)) {
    ends[i % depth].synchronize();
    auto buffer = std::make_shared<Buffer>(size);
    copy(stream, there, *buffer);
    enqueue_drop(stream, std::move(buffer));
    ends[i % depth].record(stream);
  }
  stream.synchronize();
  EXPECT_LE(since().misses, 3 * depth);
}

TEST_F(PinnedMemory, ACompleteBlockIsFoundBehindPendingOnes) {
  constexpr size_t count = 30;
  const Stream blocked, runs_on;
  allow(count + 1);
  PinnedPool::set_limit(huge);
  Gate gate{blocked};
  {
    std::vector<Buffer> all(count);
    for (Buffer& each : all) (each = Buffer(size)).record_stream(blocked);
  }
  const void* complete = nullptr;
  {
    Buffer buffer{size};
    complete = buffer.data();
    buffer.record_stream(runs_on);
  }
  runs_on.synchronize();
  EXPECT_EQ(next_block(), complete);
  gate.open_and_wait(blocked);
}

TEST_F(PinnedMemory, ThreadsExchangeBlocks) {
  std::mutex mutex;
  std::vector<Buffer> exchanged;
  Stream stream;
  DeviceBytes there{size, stream};
  on_threads(4, [&](int index) {
    for (int i : range(300)) {
      Buffer mine{size};
      std::memset(mine.data(), index + 1, size);
      if (i % 8 == 0) copy(stream, there, mine);
      EXPECT_ALL(mine, index + 1) << "two owners of one block";
      const std::lock_guard lock{mutex};
      exchanged.push_back(std::move(mine));
      if (exchanged.size() > 8) exchanged.erase(exchanged.begin());
    }
  });
  exchanged.clear();
  EXPECT_EQ(since().blocks, 0U);
}

TEST_F(PinnedMemory, ABlockFreedInAHostFunctionIsReusedAfterItsUse) {
  SKIP_IF(!host_functions_overlap(), "a host function that blocks delays the others here");
  Stream stream, other;
  const void* held = nullptr;
  allow(2);
  Gate gate{other};
  {
    auto buffer = std::make_shared<Buffer>(size);
    held = buffer->data();
    fill_bytes(other, buffer->data(), 1, size);
    enqueue_drop(stream, std::move(buffer));
  }
  EXPECT_COMPLETES(stream);
  expect_kept_behind(gate, other, held);
}

TEST_F(PinnedMemory, AnAddressThatTheRuntimeReusesIsAFreshBlock) {
  Stream stream;
  DeviceBytes there{size, stream};
  on_threads(4, [&](int index) {
    for (int i : range(50)) {
      Buffer mine{size};
      std::memset(mine.data(), index + 1, size);
      if (i % 2 == 0) copy(stream, there, mine);
      PinnedPool::trim();
      EXPECT_ALL(mine, index + 1);
    }
  });
  stream.synchronize();
  EXPECT_EQ(since().blocks, 0U);
}

using Registration = Conformance;

const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
/// The first address in the bytes that is a multiple of `unit`, but not their own.
unsigned char* aligned(Bytes& bytes, size_t unit) {
  return bytes.data() + (unit - reinterpret_cast<uintptr_t>(bytes.data()) % unit);
}

TEST_F(Registration, MemoryIsPinnedWhileItIsRegistered) {
  Stream stream;
  Bytes memory(size, 3);
  {
    const HostRegistration pin{memory};
    EXPECT_EQ(pin.data(), memory.data());
    EXPECT_EQ(pin.size_bytes(), size);
    EXPECT_KIND(memory.data(), pinned);
    EXPECT_NE(pin.device_pointer(), nullptr);
    DeviceBytes there{size, stream};
    EXPECT_EQ(copy(stream, there, memory, {Pageable::refuse}), CopyResult::direct);
    EXPECT_EQ(read_back(stream, there), memory);
  }
  EXPECT_KIND(memory.data(), pageable);
}

TEST_F(Registration, MemoryThatIsRegisteredInPartsIsFilled) {
  constexpr size_t part = 64 * kib;
  const Stream stream;
  const std::unique_ptr<void, decltype(&std::free)> ordinary{std::aligned_alloc(part, 4 * part),
                                                             &std::free};
  const std::span memory{static_cast<unsigned char*>(ordinary.get()), 4 * part};
  const HostRegistration first{memory.data(), part}, second{memory.data() + part, part},
      last{memory.data() + 3 * part, part};
  for (const size_t bytes : {2 * part, 4 * part}) {
    fill_bytes(stream, memory.data(), 7, bytes);
    stream.synchronize();
    EXPECT_EQ(std::count(memory.data(), memory.data() + bytes, 7),
              static_cast<std::ptrdiff_t>(bytes));
    fill(stream, std::span{reinterpret_cast<std::uint16_t*>(memory.data()), bytes / 2},
         std::uint16_t{0x0908});
    fill_2d(stream, memory.data(), 256, 5, 16, bytes / 256);
    stream.synchronize();
    EXPECT_EQ(std::count(memory.data(), memory.data() + bytes, 5),
              static_cast<std::ptrdiff_t>(bytes / 16));
    EXPECT_EQ(std::count(memory.data(), memory.data() + bytes, 8),
              static_cast<std::ptrdiff_t>((bytes - bytes / 16) / 2));
  }
}

/// A runtime refuses such memory where it begins in a registration and ends outside it.
TEST_F(Registration, MemoryThatIsRegisteredInPartsIsCopiedByEachPolicy) {
  constexpr size_t part = 64 * kib;
  const Stream stream;
  for (const auto& [begin, registered] : {std::pair{0 * part, 1 * part},
                                          {1 * part, 1 * part},
                                          {3 * part, 1 * part},
                                          {0 * part, 3 * part}})
    for (const Pageable policy : {Pageable::stage, Pageable::block})
      for (const size_t bytes : {4UL, part, 4 * part, 16 * part}) {
        Bytes ordinary(17 * part, 7), back(bytes);
        auto* const memory = aligned(ordinary, part);
        const HostRegistration pin{memory + begin, registered};
        const std::span all{memory, bytes};
        DeviceBytes there{bytes, stream};
        copy(stream, there, all, {policy});
        copy(stream, back, there);
        stream.synchronize();
        EXPECT_ALL(back, 7);
        fill_bytes(stream, there.data(), 5, bytes);
        copy(stream, all, there, {policy});
        stream.synchronize();
        EXPECT_ALL(all, 5);
        fill_bytes(stream, memory, 3, bytes);
        copy(stream, back, all, {policy});  // between two host memories
        stream.synchronize();
        EXPECT_ALL(back, 3);
      }
}

/// A device writes the part behind the gate.
TEST_F(Registration, ASourceThatIsRegisteredInPartIsReadAfterACopyIntoThatPart) {
  constexpr size_t part = 64 * kib;
  const Stream stream;
  for (const size_t at : {0 * part, 1 * part, 3 * part}) {
    Bytes ordinary(5 * part, 7), back(4 * part);
    const std::span all{aligned(ordinary, part), 4 * part};
    const HostRegistration pin{all.subspan(at, part)};
    DeviceBytes five{part, stream}, there{all.size(), stream};
    fill(stream, five, 5);
    Gate gate{stream, {.writes_host_memory = false}};
    copy(stream, all.subspan(at, part), five);
    copy(stream, there, all);
    copy(stream, back, there);
    gate.open_and_wait(stream);
    EXPECT_EQ(std::ranges::count(back, 5), static_cast<std::ptrdiff_t>(part)) << at;
  }
}

/// Whether the pages are pinned: one character for each, with its first and its last byte.
std::string pinned_pages(const unsigned char* memory, size_t pages) {
  std::string kinds;
  for (size_t i : range(pages)) {
    const bool first = pointer_info(memory + i * page).kind == MemoryKind::pinned;
    const bool last = pointer_info(memory + (i + 1) * page - 1).kind == MemoryKind::pinned;
    kinds += first && last ? 'p' : first || last ? '?' : '.';
  }
  return kinds;
}

TEST_F(Registration, PinsWhatIsNotPinnedYetAndUndoesOnlyThat) {
  Bytes ordinary(9 * page);
  auto* const memory = aligned(ordinary, page);
  const auto pages = [&] { return pinned_pages(memory, 8); };
  const HostRegistration part{memory + 2 * page, 2 * page};
  {
    HostRegistration all{memory, 8 * page};
    EXPECT_EQ(pages(), "pppppppp");
    EXPECT_EQ(all.data(), memory);
    EXPECT_EQ(all.size_bytes(), 8 * page);
    EXPECT_NE(all.device_pointer(), nullptr);
    const HostRegistration within{memory + page, 4 * page};
    EXPECT_EQ(pages(), "pppppppp");
    const HostRegistration moved{std::move(all)};
    EXPECT_EQ(pages(), "pppppppp");
  }
  EXPECT_EQ(pages(), "..pp....");
  {
    const HostRegistration same{memory + 2 * page, 2 * page}, before{memory + page, 2 * page},
        after{memory + 3 * page, 3 * page};
    EXPECT_EQ(pages(), ".ppppp..");
  }
  EXPECT_EQ(pages(), "..pp....");
  Stream stream;
  const HostRegistration all{memory, 8 * page};
  std::fill(memory, memory + 8 * page, static_cast<unsigned char>(6));
  DeviceBytes there{8 * page, stream};
  copy(stream, there, std::span{memory, 8 * page});
  EXPECT_ALL(read_back(stream, there), 6);
}

/// Where a registration ends within a page, the rest of that page stays as it is: the runtimes pin
/// pages.
TEST_F(Registration, BesideAPartOfAPageOtherPagesArePinned) {
  Bytes ordinary(9 * page);
  auto* const memory = aligned(ordinary, page);
  const HostRegistration part{memory + 3 * page + 100, page};
  {
    const HostRegistration all{memory, 8 * page};
    EXPECT_EQ(pinned_pages(memory, 3), "ppp");
    EXPECT_EQ(pinned_pages(memory + 5 * page, 3), "ppp");
  }
  EXPECT_EQ(pinned_pages(memory, 3), "...");
  EXPECT_EQ(pinned_pages(memory + 5 * page, 3), "...");
  EXPECT_KIND(part.data(), pinned);
}

TEST_F(Registration, PinnedMemoryIsNotPinnedAgain) {
  PinnedBytes pinned{64 * kib};
  {
    const HostRegistration twice{pinned.data() + 100, 40000};
    EXPECT_EQ(twice.data(), pinned.data() + 100);
  }
  EXPECT_KIND(pinned.data() + 100, pinned);
}

TEST_F(Registration, InvalidRangesAreRefused) {
  Stream stream;
  DeviceInts there{100, stream};
  stream.synchronize();
  int variable = 0;
  EXPECT_ERROR(invalid_argument, HostRegistration(nullptr, 4));
  EXPECT_ERROR(invalid_argument, HostRegistration(&variable, 0));
  EXPECT_ERROR(invalid_argument, HostRegistration(there.data(), 400));
  EXPECT_SAYS(TEXT_OF(HostRegistration(there.data(), 400)), "byte 0 of it is a device's memory");
  EXPECT_ERROR(invalid_argument, HostRegistration(&variable, huge));
}

TEST_F(Registration, ConstMemoryIsPinnedAsAnyOther) {
  Stream stream;
  Bytes memory(size, 3);
  const Bytes& same = memory;
  const std::span<const unsigned char> view{same};
  DeviceBytes there{size, stream};
  for (const auto& make :
       std::initializer_list<HostRegistration (*)(std::span<const unsigned char>)>{
           [](std::span<const unsigned char> s) { return HostRegistration{s}; },
           [](std::span<const unsigned char> s) { return HostRegistration{s.data(), s.size()}; },
           [](std::span<const unsigned char> s) {
             return HostRegistration{std::span<const unsigned char>{s}};
           }}) {
    const HostRegistration pin = make(view);
    EXPECT_EQ(pin.data(), same.data());
    EXPECT_NE(pin.device_pointer<const unsigned char>(), nullptr);
    EXPECT_EQ(copy(stream, there, same, {Pageable::refuse}), CopyResult::direct);
    fill(stream, there, 4);
    // its pages are writable
    EXPECT_EQ(copy(stream, memory, there, {Pageable::refuse}), CopyResult::direct);
    stream.synchronize();
    EXPECT_ALL(memory, 4);
  }
  EXPECT_KIND(memory.data(), pageable);
}

/// Pages of a file that the process may only read; the last ones of them may be written if
/// `writable` is not 0.
class MappedFile {
 public:
  explicit MappedFile(size_t bytes, size_t writable = 0) : bytes_{bytes} {
    const Bytes content(bytes, 6);
    std::FILE* const file = std::tmpfile();
    if (file == nullptr || std::fwrite(content.data(), 1, bytes, file) != bytes ||
        std::fflush(file) != 0)
      std::abort();
    mapped_ = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    std::fclose(file);
    if (mapped_ == MAP_FAILED) std::abort();
    if (writable != 0 && mprotect(data() + bytes - writable, writable, PROT_READ | PROT_WRITE) != 0)
      std::abort();
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { munmap(mapped_, bytes_); }
  unsigned char* data() const { return static_cast<unsigned char*>(mapped_); }
  size_t size() const { return bytes_; }

 private:
  void* mapped_ = nullptr;
  size_t bytes_;
};

TEST_F(Registration, ReadOnlyPagesArePinnedWhereTheDeviceCan) {
  const size_t bytes = 16 * page;
  for (const size_t writable : {0 * page, 4 * page}) {
    const MappedFile file{bytes, writable};
    const std::span<const unsigned char> content{file.data(), bytes};
    Stream stream;
    DeviceBytes there{bytes, stream};
    Bytes back(bytes);
    if (!device().can_pin_read_only_memory() && !device().can_use_host_page_tables()) {
      EXPECT_ERROR(not_supported, HostRegistration{content});
      EXPECT_SAYS(TEXT_OF(HostRegistration{content}),
                  "a part of it is read-only, and device 0 cannot pin such memory");
    } else {
      const HostRegistration pin{content};
      EXPECT_EQ(pin.data(), file.data());
      EXPECT_KIND(file.data() + bytes - 1, pinned);
      EXPECT_EQ(copy(stream, there, content, {Pageable::refuse}), CopyResult::direct);
      copy(stream, back, there);
      stream.synchronize();
      EXPECT_ALL(back, 6);
    }
    EXPECT_KIND(file.data(), pageable);
    copy(stream, there, content);  // nothing is left of either
    copy(stream, back, there);
    stream.synchronize();
    EXPECT_ALL(back, 6);
  }
}

TEST_F(Registration, AddressesWithoutMemoryAreRefused) {
  void* const mapped =
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const begin = static_cast<std::byte*>(mapped);
  ASSERT_EQ(munmap(begin + page, page), 0);
  EXPECT_ERROR(invalid_argument, HostRegistration(begin + page, 8));
  EXPECT_ERROR(invalid_argument, HostRegistration(begin, 3 * page));
  EXPECT_ERROR(invalid_argument, HostRegistration(begin + page - 8, 9));
  {
    const HostRegistration there{begin + 8, page - 8};  // nothing of the refused ones is left
    EXPECT_KIND(begin + 8, pinned);
  }
  munmap(begin, page);
  munmap(begin + 2 * page, page);
}

TEST_F(Registration, MovesLikeAnOwner) {
  Bytes memory(mib);
  // so far apart that no page is in both ranges
  unsigned char* const second = memory.data() + (512 * kib);
  HostRegistration a{memory.data(), size};
  HostRegistration b{std::move(a)};
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.device_pointer(), nullptr);
  HostRegistration c{second, size};
  c = std::move(b);
  EXPECT_EQ(c.data(), memory.data());
  EXPECT_KIND(second, pageable);
  c = HostRegistration{};
  EXPECT_KIND(memory.data(), pageable);
}

TEST_F(PinnedMemory, DevicePointersReachTheSameMemory) {
  SKIP_IF(!device().can_map_host_memory(), "the device does not map host memory");
  Stream stream;
  PinnedInts memory{4};
  fill(stream, DeviceSpan<int>{memory.device_pointer(), 4}, 7);
  stream.synchronize();
  EXPECT_EQ(memory[3], 7);
}

TEST_F(PinnedMemory, ContainersUseThePool) {
  {
    std::vector<int, PinnedAllocator<int>> numbers(1000, 5);
    std::pmr::vector<int> others(numbers.begin(), numbers.end(), pinned_resource());
    EXPECT_EQ(since().blocks, 2U);
    EXPECT_EQ(others.back(), 5);
    EXPECT_TRUE(numbers.get_allocator() == PinnedAllocator<double>{});
  }
  EXPECT_EQ(since().blocks, 0U);
  EXPECT_TRUE(pinned_resource()->is_equal(*pinned_resource()));
}

}  // namespace conformance::pinned_cases
