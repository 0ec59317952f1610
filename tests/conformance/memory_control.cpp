// SPDX-License-Identifier: Apache-2.0
// What programs set and ask of memory: limits, peaks, the pool's bytes; where managed memory lies;
// copies in two and three dimensions on the current stream.

#include "support.hpp"

namespace conformance::memory_control_cases {
using MemoryControl = Conformance;
using MemoryControlTwo = TwoDevices;

constexpr size_t size = mib;
using Buffer = DeviceBytes;

/// Takes the limit away again.
struct Limit {
  Limit(DeviceResource of, size_t bytes) : resource{of} { resource.set_limit(bytes); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() { resource.set_limit(huge); }
  DeviceResource resource;
};

TEST_F(MemoryControl, ALimitIsKeptToTheByteAndNamed) {
  const Stream stream;
  const DeviceResource resource{device()};
  EXPECT_EQ(resource.limit(), huge);
  const size_t used = resource.statistics().in_use;
  const Limit limit{resource, used + size};
  EXPECT_EQ(resource.limit(), used + size);
  {
    const Buffer exact{size, stream};
    try {
      const Buffer more{1, stream};
      FAIL() << "the limit was exceeded";
    } catch (const std::bad_alloc& refused) {
      EXPECT_SAYS(dynamic_cast<const Error&>(refused).what(), "set_limit");
    }
    EXPECT_ERROR(out_of_memory, resource.allocate(stream, 1));
    EXPECT_EQ(resource.statistics().in_use, used + size);
    resource.set_limit(0);
    fill_bytes(stream, const_cast<unsigned char*>(exact.data()), 1, size);  // what is in use stays
    resource.set_limit(used + size);
  }
  EXPECT_NO_ERROR(const Buffer again{size, stream});
  EXPECT_ERROR(out_of_memory, Buffer{huge, stream});
  stream.synchronize();
}

TEST_F(MemoryControl, OverlapNamesTheLimitThatLeavesNoRoom) {
  const Ints in(1000, 7);
  Ints out(1000);
  const auto run = [&] { overlap(in, out, {.chunk = 500}, copy_chunk); };
  {
    const Limit limit{DeviceResource{device()}, 0};
    try {
      run();
      FAIL() << "the limit was exceeded";
    } catch (const std::bad_alloc& refused) {
      EXPECT_SAYS(refused.what(), "DeviceResource::set_limit()");
    }
  }
  run();
  EXPECT_EQ(out, in);
}

TEST_F(MemoryControl, WithoutALimitNoErrorNamesOne) {
  const Stream stream;
  const Buffer some{size, stream};
  try {
    const Buffer most{huge, stream};
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), errc::out_of_memory);
    EXPECT_EQ(std::string{error.what()}.find("limit"), std::string::npos) << error.what();
  }
}

TEST_F(MemoryControl, ThreadsTogetherStayWithinTheLimit) {
  const DeviceResource resource{device()};
  const size_t used = resource.statistics().in_use;
  const Limit limit{resource, used + 4 * size};
  std::atomic_int fit{0};
  std::latch all{8};
  on_threads(8, [&](int) {
    const Stream stream;
    std::optional<Buffer> buffer;
    if (code_of([&] { buffer.emplace(size, stream); }) == nothing_thrown) ++fit;
    all.arrive_and_wait();
  });
  EXPECT_EQ(fit, 4);
  EXPECT_EQ(resource.statistics().in_use, used);
}

TEST_F(MemoryControl, PeaksCanBeReset) {
  const Stream stream;
  const DeviceResource resource{device()};
  {
    const Buffer buffer{size, stream};
  }
  resource.reset_peak();
  EXPECT_EQ(resource.statistics().peak, resource.statistics().in_use);
  {
    const Buffer buffer{100, stream};
  }
  EXPECT_EQ(resource.statistics().peak, resource.statistics().in_use + 100);
  {
    const PinnedBuffer<char> buffer{size};
  }
  PinnedPool::reset_peak();
  const size_t in_use = PinnedPool::statistics().in_use;
  EXPECT_EQ(PinnedPool::statistics().peak, in_use);
  {
    const PinnedBuffer<char> buffer{4096};
  }
  EXPECT_EQ(PinnedPool::statistics().peak, in_use + 4096);
}

TEST_F(MemoryControl, ThePoolHoldsAtLeastWhatIsInUse) {
  const Stream stream;
  const DeviceResource resource{device()};
  const Buffer buffer{size, stream};
  if (!device().has_memory_pools()) {
    EXPECT_ERROR(not_supported, resource.reserved());
    return;
  }
  EXPECT_GE(resource.reserved(), size);
}

/// Managed memory, or nothing if the device has none.
std::optional<ManagedBuffer<int>> managed(size_t count) {
  std::optional<ManagedBuffer<int>> made;
  if (const auto code = code_of([&] { made.emplace(count); })) {
    EXPECT_EQ(code, errc::not_supported);
  }
  return made;
}

TEST_F(MemoryControl, PrefetchAndAdviceKeepTheBytes) {
  const Stream stream;
  auto memory = managed(5000);
  SKIP_IF(!memory, "the device has no managed memory");
  count_from(*memory, 0);
  const ManagedBuffer<int>& all = *memory;
  for (const MemoryAdvice advice :
       {MemoryAdvice::mostly_read, MemoryAdvice::not_mostly_read, MemoryAdvice::preferred_place,
        MemoryAdvice::no_preferred_place, MemoryAdvice::accessed_by_place,
        MemoryAdvice::not_accessed_by_place})
    advise(all, advice, device());
  advise(all, MemoryAdvice::preferred_place, MemoryPlace::host());
  prefetch(stream, all, device());
  Ints result(5000);
  copy(stream, result, all);
  prefetch(stream, std::span{all.data(), 10}, MemoryPlace::host());
  prefetch_bytes(stream, nullptr, 0, MemoryPlace::host());
  stream.synchronize();
  EXPECT_SAME(all, result);
}

TEST_F(MemoryControl, PrefetchAndAdviceRefuseOtherMemoryAndPlaces) {
  const Stream stream;
  const Buffer buffer{16, stream};
  Ints pageable(16);
  EXPECT_ERROR(invalid_argument, prefetch(stream, buffer, device()));
  EXPECT_ERROR(invalid_argument, prefetch(stream, pageable, device()));
  EXPECT_ERROR(invalid_argument, advise(pageable, MemoryAdvice::mostly_read, device()));
  EXPECT_ERROR(invalid_argument, prefetch_bytes(stream, nullptr, 1, device()));
  EXPECT_ERROR(invalid_device, prefetch(stream, pageable, Device{1000}));
  EXPECT_ERROR(invalid_device, prefetch(stream, pageable, Device{-1}))
      << "not the host by accident";
  EXPECT_ERROR(invalid_device, advise(pageable, MemoryAdvice::mostly_read, Device{1000}));
  Stream moved;
  const Stream taken{std::move(moved)};
  EXPECT_ERROR(invalid_handle, prefetch_bytes(moved, nullptr, 0, device()));
}

TEST_F(MemoryControl, APrefetchInACaptureIsRefusedAndTheCaptureGoesOn) {
  const Stream stream;
  auto memory = managed(16);
  SKIP_IF(!memory, "the device has no managed memory");
  const Graph graph = capture(stream, [&] {
    enqueue_nothing(stream);
    EXPECT_ERROR(capture, prefetch(stream, *memory, device()));
    EXPECT_NO_ERROR(advise(*memory, MemoryAdvice::mostly_read, device()));
    enqueue_nothing(stream);
  });
  EXPECT_NODES(graph, 2U);
}

/// A box in a larger array of bytes, on the host.
struct Box {
  Pitches pitches;
  size_t begin;
  size_t at(size_t x, size_t y, size_t z) const {
    return begin + z * pitches.slice + y * pitches.row + x;
  }
};

/// Copies `extent` from a box of pageable memory to the device and back to another box; all bytes
/// around it must stay.
void expect_box(const Box& from, const Box& on_device, const Box& to, const Extent& extent) {
  const Stream stream;
  const Bytes source = pattern(60'000, 3);
  Bytes result(60'000, 7), expected = result;
  DeviceBytes between(60'000, stream);
  copy_3d(stream, between.data() + on_device.begin, on_device.pitches, source.data() + from.begin,
          from.pitches, extent);
  copy_3d(stream, result.data() + to.begin, to.pitches, between.data() + on_device.begin,
          on_device.pitches, extent);
  stream.synchronize();
  for (size_t z : range(extent.depth))
    for (size_t y : range(extent.height))
      for (size_t x : range(extent.width)) expected[to.at(x, y, z)] = source[from.at(x, y, z)];
  EXPECT_TRUE(result == expected) << extent.width << " x " << extent.height << " x "
                                  << extent.depth;
}

TEST_F(MemoryControl, BoxesArriveWhateverTheirPitches) {
  const Box loose{{40, 1000}, 5}, tight{{13, 13 * 11}, 0}, wide{{64, 64 * 11}, 9};
  for (const Extent& extent : {Extent{13, 11, 7}, Extent{13, 3, 20}, Extent{13, 11, 1},
                               Extent{13, 1, 9}, Extent{1, 1, 1}, Extent{13, 2, 3}}) {
    expect_box(loose, tight, wide, extent);
    expect_box(tight, tight, tight, extent);
    expect_box(wide, loose, tight, extent);
    expect_box(wide, wide, loose, extent);
  }
}

TEST_F(MemoryControl, BoxesThatCannotBeAreRefused) {
  const Stream stream;
  Bytes a(1000), b(1000);
  const auto with = [&](void* to, Pitches to_pitches, const void* from, Pitches from_pitches,
                        Extent extent) {
    return code_of([&] { return copy_3d(stream, to, to_pitches, from, from_pitches, extent); });
  };
  const Pitches good{10, 100};
  const Extent extent{10, 4, 3};
  EXPECT_EQ(with(a.data(), good, b.data(), good, extent), nothing_thrown);
  EXPECT_EQ(with(a.data(), {9, 100}, b.data(), good, extent), errc::invalid_argument);
  EXPECT_EQ(with(a.data(), good, b.data(), {10, 39}, extent), errc::invalid_argument);
  EXPECT_EQ(with(nullptr, good, b.data(), good, extent), errc::invalid_argument);
  EXPECT_EQ(with(a.data(), good, b.data(), {10, huge / 2}, extent), errc::invalid_argument);
  EXPECT_EQ(with(a.data(), good, a.data() + 5, good, extent), errc::invalid_argument)
      << "they overlap in part";
  EXPECT_EQ(with(a.data(), good, a.data() + 40, good, extent), nothing_thrown)
      << "the slices lie between each other";
  EXPECT_EQ(copy_3d(stream, a.data(), good, a.data(), good, extent), CopyResult::nothing);
  EXPECT_EQ(copy_3d(stream, nullptr, {}, nullptr, {}, {0, 4, 3}), CopyResult::nothing);
  EXPECT_EQ(copy_3d(stream, nullptr, {}, nullptr, {}, {4, 4, 0}), CopyResult::nothing);
  stream.synchronize();
}

TEST_F(MemoryControl, PitchedFormsTakeTheCurrentStreamAndAPolicy) {
  const Stream stream;
  const StreamGuard with{stream};
  DeviceBytes memory(600);
  Bytes source = pattern(600), result(600);
  Gate gate{stream};
  fill_bytes(memory.data(), 1, 600);
  fill_2d(memory.data(), 20, 2, 10, 30);
  gate.open();
  copy_bytes(result.data(), memory.data(), 600, {Pageable::stage});
  stream.synchronize();
  EXPECT_EQ(result[9], 2);
  EXPECT_EQ(result[10], 1);
  copy_2d(memory.data(), 20, source.data(), 20, 10, 30, {Pageable::stage});
  copy_3d(result.data(), {20, 200}, memory.data(), {20, 200}, {10, 10, 3}, {Pageable::block});
  EXPECT_ERROR(not_permitted,
               copy_2d(memory.data(), 20, source.data(), 20, 10, 30, {Pageable::refuse}));
  EXPECT_ERROR(not_permitted, copy_3d(memory.data(), {20, 200}, source.data(), {20, 200},
                                      {10, 10, 3}, {Pageable::refuse}));
  stream.synchronize();
  EXPECT_TRUE(std::equal(source.begin() + 580, source.begin() + 590, result.begin() + 580));
}

TEST_F(MemoryControlTwo, EachDeviceHasItsOwnLimit) {
  const Limit limit{DeviceResource{first}, 0};
  const Stream one{first}, two{second};
  EXPECT_ERROR(out_of_memory, Buffer{1, one});
  EXPECT_NO_ERROR(const Buffer buffer{1, two});
}

}  // namespace conformance::memory_control_cases
