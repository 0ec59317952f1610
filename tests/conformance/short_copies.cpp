// SPDX-License-Identifier: Apache-2.0
// Copies of a few bytes of pageable memory on idle streams. The calling thread may do such a copy
// itself.

#include "support.hpp"

namespace conformance::short_copies_cases {
using ShortCopies = Conformance;

constexpr size_t most = 257 * kib;

TEST_F(ShortCopies, SizesUpTo257KiBKeepEveryByte) {
  Stream stream;
  DeviceBytes there{most, stream};
  unsigned seed = 0;
  for (const size_t size : {1UL, 100UL, 4 * kib, 32 * kib, 32 * kib + 1, 64 * kib, 100'001UL,
                            128 * kib, 128 * kib + 1, 200 * kib, 256 * kib, 256 * kib + 1}) {
    const Bytes expected = pattern(size, ++seed);
    Bytes source = expected, back(size);
    stream.synchronize();
    if (copy_bytes(stream, there.data(), source.data(), size) == CopyResult::inlined)
      std::ranges::fill(source, 0);
    stream.synchronize();
    if (copy_bytes(stream, back.data(), there.data(), size) != CopyResult::inlined)
      stream.synchronize();
    EXPECT_TRUE(back == expected) << size;
  }
}

TEST_F(ShortCopies, OnAnIdleStreamTheyAreInlined) {
  SKIP_IF(streams_are_threads() || device().can_use_host_page_tables(),
          "the stream reads pageable memory itself");
  const Stream stream;
  DeviceBytes there{256 * kib, stream};
  for (const size_t size : {1UL, 32 * kib, 33 * kib, 100 * kib, 256 * kib}) {
    const Bytes source = pattern(size, 1);
    stream.synchronize();
    EXPECT_EQ(copy_bytes(stream, there.data(), source.data(), size), CopyResult::inlined) << size;
  }
}

/// Each goes through the stream's pinned block, which the one before has used.
TEST_F(ShortCopies, SixteenToManagedMemoryArrive) {
  constexpr size_t count = 16, size = 64 * kib;
  const Stream stream;
  std::optional<ManagedBuffer<unsigned char>> there;
  const auto code = code_of([&] { there.emplace(count * size); });
  SKIP_IF(code == errc::not_supported, "the device has no managed memory");
  ASSERT_EQ(code, nothing_thrown);
  const Bytes source = pattern(count * size, 5);
  stream.synchronize();
  for (size_t i : range(count))
    copy_bytes(stream, there->data() + i * size, source.data() + i * size, size);
  stream.synchronize();
  EXPECT_TRUE(std::equal(source.begin(), source.end(), there->data()));
}

TEST_F(ShortCopies, RowsOfFiveShapesKeepEveryByte) {
  struct Shape {
    size_t width, height, host_pitch, device_pitch;
  };
  // The last shape is slow on a device: each row has one byte.
  for (const Shape s : {Shape{1, 1, 3, 2}, Shape{100, 50, 128, 100}, Shape{1000, 200, 1000, 1024},
                        Shape{4096, 64, 4096, 4096}, Shape{1, 200 * kib, 2, 1}}) {
    Stream stream;
    DeviceBytes there{s.device_pitch * s.height, stream};
    const Bytes source = pattern(s.host_pitch * s.height, 3);
    Bytes back(source.size(), 0xEE), expected = back;
    for (size_t row : range(s.height))
      std::copy_n(source.data() + row * s.host_pitch, s.width, &expected[row * s.host_pitch]);
    stream.synchronize();
    copy_2d(stream, there.data(), s.device_pitch, source.data(), s.host_pitch, s.width, s.height);
    stream.synchronize();
    copy_2d(stream, back.data(), s.host_pitch, there.data(), s.device_pitch, s.width, s.height);
    stream.synchronize();
    EXPECT_TRUE(back == expected) << s.width << " x " << s.height;
  }
}

TEST_F(ShortCopies, DoNotWaitForAnotherStreamsCopies) {
  constexpr size_t much = 64 * mib;
  Stream stream, other;
  DeviceBytes there{much, stream};
  PinnedBytes block{much};
  Bytes few(64 * kib);
  fill_bytes(stream, there.data(), 7, much);
  stream.synchronize();
  bool held = true;
  for (int attempt = 0; held && attempt < 5;
       ++attempt) {  // on a busy machine the thread may be descheduled for longer than the copies
                     // take
    copy(other, block, there);
    const Event begun = other.record_event();
    repeat(15, [&] { copy(other, block, there); });
    begun.synchronize();
    copy_bytes(stream, few.data(), there.data(), few.size());
    held = other.query();
    stream.synchronize();
    other.synchronize();
  }
  EXPECT_FALSE(held) << "the call returned only after the other stream had finished";
  EXPECT_ALL(few, 7);
}

size_t pinned_now() {
  const PinnedStatistics now = PinnedPool::statistics();
  return now.in_use + now.cached;
}

TEST_F(ShortCopies, ManyStreamsPinLittle) {
  PinnedPool::trim();
  Staging::trim();
  const size_t before = pinned_now();
  Streams streams(64);
  const Bytes source = pattern(64, 1);
  DeviceBytes there{streams.size() * source.size(), streams[0]};
  streams[0].synchronize();
  repeat(20, [&] {
    for (size_t s : range(streams.size()))
      copy_bytes(streams[s], there.data() + s * source.size(), source.data(), source.size());
  });
  EXPECT_LE(pinned_now(), before + 64 * 4 * 64 * kib);
  for (const Stream& each : streams) each.synchronize();
  streams.clear();
  EXPECT_EVENTUALLY((PinnedPool::trim(), pinned_now() <= before + 64 * kib));
}

TEST_F(ShortCopies, AtALimitTheyNeitherWaitNorHoldMemory) {
  Staging::trim();
  PinnedPool::trim();
  const size_t before = pinned_now();
  PinnedPool::set_limit(before + mib);
  std::array<Stream, 6> streams;
  Bytes source = pattern(64 * kib, 1);
  DeviceBytes there{streams.size() * source.size(), streams[0]};
  streams[0].synchronize();
  const auto copy_there = [&](size_t s) {
    copy_bytes(streams[s], there.data() + s * source.size(), source.data(), source.size());
  };
  repeat(10, [&] {
    for (size_t s : range(streams.size())) copy_there(s);
  });
  for (const Stream& each : streams) each.synchronize();
  EXPECT_NO_ERROR(const PinnedBytes own{mib});
  {
    PinnedBytes own{mib};
    Gate gate{streams[0]};
    own.record_stream(streams[0]);
    own = {};
    Standstills machine;
    const auto start = Clock::now();
    repeat(20, [&] { copy_there(1); });
    const auto took = Clock::now() - start;
    EXPECT_LT(took - machine.longest(), 1s) << "each waits for memory";
    gate.open_and_wait(streams[0]);
  }
  streams[1].synchronize();
  PinnedPool::set_limit(huge);
}

TEST_F(ShortCopies, StreamsThatComeAndGoKeepEveryByte) {
  constexpr size_t size = 90 * kib;
  struct Line {
    Stream stream;
    DeviceBytes there{size, stream};
    Bytes source, back = Bytes(size);
  };
  std::unique_ptr<Line> lines[20];
  for (unsigned round : range(10U)) {
    for (unsigned i : range(20U)) {
      if (!lines[i] || (round + i) % 3 == 0) lines[i] = std::make_unique<Line>();
      Line& line = *lines[i];
      line.stream.synchronize();
      line.source = pattern(size, 20 * round + i);
      copy(line.stream, line.there, line.source);
    }
    for (const auto& line : lines) {
      line->stream.synchronize();
      copy(line->stream, line->back, line->there);
    }
    for (const auto& line : lines) {
      line->stream.synchronize();
      EXPECT_TRUE(line->back == line->source);
    }
  }
}

TEST_F(ShortCopies, WithoutPinnedMemoryTheyArrive) {
  Staging::trim();
  PinnedPool::trim();
  const size_t limit = PinnedPool::limit();
  PinnedPool::set_limit(0);
  Stream stream;
  DeviceBytes there{most, stream};
  const Bytes source = pattern(100 * kib, 9);
  Bytes back(source.size());
  stream.synchronize();
  copy_bytes(stream, there.data(), source.data(), source.size());
  stream.synchronize();
  copy_bytes(stream, back.data(), there.data(), back.size());
  stream.synchronize();
  PinnedPool::set_limit(limit);
  EXPECT_TRUE(back == source);
}

TEST_F(ShortCopies, PinnedMemoryIsReportedAsDirect) {
  Stream stream;
  for (const size_t size : {1000UL, 4 * kib, 32 * kib, 100 * kib}) {
    DeviceBytes there{size, stream};
    Bytes registered = pattern(size, 3);
    const HostRegistration pinned{registered};
    PinnedBytes buffer{size};
    stream.synchronize();
    EXPECT_EQ(copy(stream, there, std::as_const(registered)), CopyResult::direct);
    stream.synchronize();
    EXPECT_EQ(copy_bytes(stream, there.data(), buffer.data(), size), CopyResult::direct);
    stream.synchronize();
  }
}

TEST_F(ShortCopies, TrimFreesTheirPinnedMemory) {
  Staging::trim();
  PinnedPool::trim();
  const PinnedStatistics before = PinnedPool::statistics();
  Stream stream;
  DeviceBytes there{most, stream};
  Bytes host = pattern(100 * kib, 1);
  stream.synchronize();
  copy_bytes(stream, there.data(), host.data(), host.size());
  stream.synchronize();
  Staging::trim();
  EXPECT_EQ(PinnedPool::statistics().blocks, before.blocks);
  stream.synchronize();
  PinnedPool::trim();
  EXPECT_EQ(PinnedPool::statistics().cached_blocks, before.cached_blocks);
}

}  // namespace conformance::short_copies_cases
