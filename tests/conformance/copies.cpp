// SPDX-License-Identifier: Apache-2.0
// Copies and fills.
#include <sys/mman.h>

#include <variant>

#include "support.hpp"

namespace conformance::copies_cases {
using Copies = Conformance;
using CopiesTwo = TwoDevices;

constexpr size_t page = 4096;
constexpr size_t large = mib + 1;  // too large to be copied within the call

/// Bytes in pageable, pinned or device memory.
class Block {
 public:
  Block(MemoryKind kind, size_t size, StreamRef stream) : memory_{make(kind, size, stream)} {}
  unsigned char* data() {
    return std::visit([](auto& memory) { return memory.data(); }, memory_);
  }

 private:
  using Memory = std::variant<Bytes, PinnedBytes, DeviceBytes>;
  static Memory make(MemoryKind kind, size_t size, StreamRef stream) {
    if (kind == MemoryKind::pinned) return Memory{std::in_place_type<PinnedBytes>, size};
    if (kind == MemoryKind::device) return Memory{std::in_place_type<DeviceBytes>, size, stream};
    return Memory{std::in_place_type<Bytes>, size};
  }
  Memory memory_;
};

constexpr MemoryKind kinds[] = {MemoryKind::pageable, MemoryKind::pinned, MemoryKind::device};

void expect_round_trip(StreamRef stream, size_t size) {
  const Bytes source = pattern(size);
  for (const MemoryKind first : kinds)
    for (const MemoryKind second : kinds) {
      Block a{first, size, stream}, b{second, size, stream};
      Bytes result(size);
      copy_bytes(stream, a.data(), source.data(), size);
      copy_bytes(stream, b.data(), a.data(), size);
      copy_bytes(stream, result.data(), b.data(), size);
      stream.synchronize();
      EXPECT_TRUE(result == source) << size << " bytes, kind " << static_cast<int>(first) << " to "
                                    << static_cast<int>(second);
    }
}

TEST_F(Copies, RoundTripBetweenAllKindsOfMemoryAtAllSizes) {
  Stream stream;
  for (const size_t size : {0UL, 1UL, 3UL, page / 2, page - 1, page, page + 1, 2 * page,
                            (64 * kib) - 1, 64 * kib, (64 * kib) + 1, large, (9 * mib) + 3})
    expect_round_trip(stream, size);
}

TEST_F(Copies, RoundTripOfMoreThan2GiB) {
  SKIP_IF(!long_tests(), "RUNNEL_LONG_TESTS is not set");
  constexpr size_t size = (1UL << 31) + 1;
  Stream stream;
  const Bytes source = pattern(size);
  DeviceBytes there{size, stream};
  copy(stream, there, source);
  EXPECT_TRUE(read_back(stream, there) == source);
}

TEST_F(Copies, ZeroBytesAreANoOpEvenWithNullPointers) {
  Stream stream;
  Gate gate{stream};
  unsigned char byte = 0;
  EXPECT_EQ(copy_bytes(stream, nullptr, nullptr, 0), CopyResult::nothing);
  EXPECT_EQ(copy_bytes(stream, &byte, nullptr, 0), CopyResult::nothing);
  EXPECT_EQ(copy_bytes(stream, nullptr, &byte, 0, Pageable::block), CopyResult::nothing);
  EXPECT_EQ(copy_bytes(stream, nullptr, nullptr, 0, Pageable::refuse), CopyResult::nothing);
  Ints no_elements;
  EXPECT_EQ(copy(stream, no_elements, no_elements), CopyResult::nothing);
  fill_bytes(stream, nullptr, 1, 0);
  fill(stream, std::span<int>{}, 1);
}

TEST_F(Copies, AResultHasAName) {
  EXPECT_STREQ(name(CopyResult::nothing), "nothing");
  EXPECT_STREQ(name(CopyResult::blocked), "blocked");
}

TEST_F(Copies, InteriorDevicePointersAreRecognised) {
  Stream stream;
  DeviceInts there{8, stream};
  const Ints source{1, 2, 3};
  fill(stream, there, 0);
  copy(stream, there.span().subspan(4, 3), source);
  EXPECT_EQ(read_back(stream, there.span().subspan(4, 3)), source);
  const PointerInfo info = pointer_info(there.data() + 5);
  EXPECT_EQ(info.kind, MemoryKind::device);
  EXPECT_EQ(info.device, device());
}

TEST_F(Copies, PinnedCopiesReturnAtOnceBothWays) {
  Stream stream;
  DeviceBytes there{large, stream};
  PinnedBytes source{large}, result{large};
  const Bytes expected = pattern(large);
  std::memcpy(source.data(), expected.data(), large);
  std::memset(result.data(), 0, large);
  Gate gate{stream};
  EXPECT_EQ(copy(stream, there, source), CopyResult::direct);
  EXPECT_EQ(copy(stream, result, there), CopyResult::direct);
  EXPECT_EQ(copy(stream, result, there, Pageable::refuse), CopyResult::direct);
  EXPECT_PENDING(stream);
  EXPECT_EQ(result[0], 0);
  gate.open_and_wait(stream);
  EXPECT_SAME(result, expected);
}

TEST_F(Copies, StagedCopiesReturnAtOnceBothWays) {
  for (const size_t size : {100UL, 64 * kib, large, 9 * mib}) {
    Stream stream;
    DeviceBytes there{size, stream};
    const Bytes source = pattern(size);
    Bytes result(size);
    Gate gate{stream};
    const CopyResult up = copy(stream, there, source, Pageable::stage);
    const CopyResult down = copy(stream, result, there, Pageable::stage);
    EXPECT_PENDING(stream);
    EXPECT_CLOSED(gate);
    for (const CopyResult did : {up, down}) {
      EXPECT_NE(did, CopyResult::blocked);
      EXPECT_NE(did, CopyResult::nothing);
    }
    gate.open_and_wait(stream);
    EXPECT_TRUE(result == source) << size;
  }
}

TEST_F(Copies, HostToHostCopiesReturnAtOnce) {
  for (const size_t size : {100UL, large})
    for (const MemoryKind first : {MemoryKind::pageable, MemoryKind::pinned})
      for (const MemoryKind second : {MemoryKind::pageable, MemoryKind::pinned}) {
        Stream stream;
        Block from{first, size, stream}, to{second, size, stream};
        const Bytes expected = pattern(size);
        std::memcpy(from.data(), expected.data(), size);
        Gate gate{stream};
        copy_bytes(stream, to.data(), from.data(), size);
        EXPECT_PENDING(stream);
        EXPECT_CLOSED(gate);
        gate.open_and_wait(stream);
        EXPECT_EQ(std::memcmp(to.data(), expected.data(), size), 0);
      }
}

TEST_F(Copies, BlockingDeviceToHostCopiesReturnWhenTheBytesHaveArrived) {
  Stream stream;
  DeviceBytes there{large, stream};
  const Bytes source = pattern(large);
  Bytes result(large);
  copy(stream, there, source);
  stream.synchronize();
  Gate gate{stream};
  CopyResult did{};
  EXPECT_HELD(gate, did = copy(stream, result, there, Pageable::block));
  EXPECT_EQ(did, CopyResult::blocked);
  EXPECT_TRUE(result == source);
}

TEST_F(Copies, BlockingHostToDeviceCopiesLeaveTheSourceReusable) {
  Stream stream;
  DeviceBytes there{large, stream};
  Bytes source = pattern(large);
  const Bytes expected = source;
  Gate gate{stream};
  CopyResult did{};
  // A driver that copies the source within the call need not block the caller until the bytes have
  // arrived.
  drop(held_by(gate, [&] { did = copy(stream, there, source, Pageable::block); }));
  EXPECT_EQ(did, CopyResult::blocked);
  std::ranges::fill(source, 0);
  EXPECT_TRUE(read_back(stream, there) == expected);
}

/// Blocking copies of a few bytes: a runtime may read such a source within the call.
TEST_F(Copies, BlockingHostToDeviceCopiesReadWhatEarlierWorkWrites) {
  for (const bool blocking : {false, true}) {
    const Stream stream{{.blocking = blocking}};
    const StreamRef writer = blocking ? default_stream() : StreamRef{stream};
    DeviceBytes there{page, stream};
    Bytes source(page);
    const Bytes expected = pattern(page);
    stream.synchronize();
    Gate gate{writer};
    writer.launch_host_func([&expected, to = source.data()] { std::ranges::copy(expected, to); });
    EXPECT_HELD(gate, copy(stream, there, source, Pageable::block));
    EXPECT_TRUE(read_back(stream, there) == expected);
  }
}

TEST_F(Copies, RefusedPageableCopiesEnqueueNothing) {
  Stream stream;
  Bytes host(page);
  DeviceBytes there{page, stream};
  fill(stream, there, 3);
  EXPECT_ERROR(not_permitted, copy(stream, there, host, Pageable::refuse));
  EXPECT_ERROR(not_permitted, copy(stream, host, there, Pageable::refuse));
  stream.synchronize();
  EXPECT_EQ(host[0], 0);
  copy(stream, host, there);
  stream.synchronize();
  EXPECT_EQ(host[0], 3);
}

TEST_F(Copies, APageableGuardRestoresWhatItFound) {
  Stream stream;
  Bytes host(page);
  DeviceBytes there{page, stream};
  const auto code = code_of([&] {
    const PageableGuard outer{Pageable::block};
    {
      const PageableGuard inner{Pageable::refuse};
      EXPECT_EQ(default_pageable(), Pageable::refuse);
      set_default_pageable(Pageable::stage);  // is undone, too
    }
    EXPECT_EQ(default_pageable(), Pageable::block);
    const PageableGuard refusing{Pageable::refuse};
    copy(stream, there, host);
  });
  EXPECT_EQ(code, errc::not_permitted);
  EXPECT_EQ(default_pageable(), Pageable::stage);
}

TEST_F(Copies, TheDefaultPageablePolicyIsPerThread) {
  Stream stream;
  Bytes host(page);
  DeviceBytes there{page, stream};
  EXPECT_EQ(default_pageable(), Pageable::stage);
  on_thread([&] {
    set_default_pageable(Pageable::refuse);
    EXPECT_EQ(default_pageable(), Pageable::refuse);
    EXPECT_ERROR(not_permitted, copy(stream, there, host));
  });
  EXPECT_EQ(default_pageable(), Pageable::stage);
  EXPECT_NE(copy(stream, there, host), CopyResult::nothing);
  stream.synchronize();
}

TEST_F(Copies, ElementsThatAreNotAlignedAreFilled) {
  struct Pixel {
    unsigned char channel[4];
  };
  struct Pair {
    unsigned char half[2];
  };
  static_assert(alignof(Pixel) == 1 && alignof(Pair) == 1);
  Stream stream;
  constexpr size_t count = 3000;
  DeviceBytes there{4 * count + 2, stream};
  PinnedBytes pinned{4 * count + 2};
  Bytes result(4 * count + 2), here(4 * count + 2);
  for (unsigned char* const to : {there.data(), pinned.data(), here.data()}) {
    fill_bytes(stream, to, 9, 4 * count + 2);
    fill(stream, std::span{reinterpret_cast<Pixel*>(to + 1), count}, Pixel{{1, 2, 3, 4}});
    copy_bytes(stream, result.data(), to, result.size());
    stream.synchronize();
    EXPECT_EQ(result[0], 9);
    EXPECT_EQ(result.back(), 9);
    for (size_t i : range(4 * count)) ASSERT_EQ(result[1 + i], i % 4 + 1) << i;
    fill(stream, std::span{reinterpret_cast<Pair*>(to + 1), count}, Pair{{5, 6}});
    copy_bytes(stream, result.data(), to, result.size());
    stream.synchronize();
    for (size_t i : range(2 * count)) ASSERT_EQ(result[1 + i], i % 2 + 5) << i;
  }
}

TEST_F(Copies, OneRowOntoItselfIsNothingWhateverThePitches) {
  Stream stream;
  Bytes row(100, 1);
  EXPECT_EQ(copy_2d(stream, row.data(), 70, row.data(), 60, 50, 1), CopyResult::nothing);
  EXPECT_ERROR(invalid_argument, copy_2d(stream, row.data(), 40, row.data(), 50, 20, 2));
}

TEST_F(Copies, InlinedCopiesAndFillValuesNeedNoSourceAfterTheCall) {
  Stream stream;
  DeviceInts there{64, stream};
  Ints source(64, 5), result(64), filled(64);
  Gate gate{stream};
  const CopyResult did = copy(stream, there, source);
  if (did == CopyResult::inlined) std::ranges::fill(source, 0);
  copy(stream, result, there);
  auto value = std::make_unique<int>(9);
  fill(stream, there, *value);
  *value = 0;
  value.reset();
  copy(stream, filled, there);
  gate.open_and_wait(stream);
  EXPECT_EQ(result, Ints(64, 5));
  EXPECT_EQ(filled, Ints(64, 9));
}

TEST_F(Copies, CopyingARangeOntoItselfIsANoOp) {
  Stream stream;
  DeviceInts there{4, stream};
  Ints host(4);
  EXPECT_EQ(copy(stream, there, there), CopyResult::nothing);
  EXPECT_EQ(copy(stream, host, host), CopyResult::nothing);
  EXPECT_EQ(copy_2d(stream, there.data(), 8, there.data(), 8, 4, 2), CopyResult::nothing);
}

TEST_F(Copies, RangesBesideEachOtherAreCopied) {
  Stream stream;
  DeviceBytes there{64, stream};
  Bytes host(64);
  for (unsigned char* base : {there.data(), host.data()})
    EXPECT_NO_ERROR(copy_bytes(stream, base + 32, base, 32));
  stream.synchronize();
}

TEST_F(Copies, RowsWithDifferentPitchesAreCopied) {
  constexpr size_t width = 5, height = 7, host_pitch = 11, device_pitch = 16;
  Stream stream;
  const Bytes source = pattern(host_pitch * height);
  for (const MemoryKind kind : kinds) {
    Block there{kind, device_pitch * height, stream};
    Bytes result(host_pitch * height, 0xee);
    copy_2d(stream, there.data(), device_pitch, source.data(), host_pitch, width, height);
    copy_2d(stream, result.data(), host_pitch, there.data(), device_pitch, width, height);
    stream.synchronize();
    for (size_t i : range(result.size()))
      EXPECT_EQ(result[i], i % host_pitch < width ? source[i] : 0xee) << i;
  }
}

TEST_F(Copies, CopiesOfPageableRowsReturnAtOnce) {
  constexpr size_t width = 2000, height = 600, pitch = 2048;
  Stream stream;
  const Bytes source = pattern(pitch * height);
  Bytes result(pitch * height);
  DeviceBytes there{pitch * height, stream};
  Gate gate{stream};
  copy_2d(stream, there.data(), pitch, source.data(), pitch, width, height);
  copy_2d(stream, result.data(), pitch, there.data(), pitch, width, height);
  EXPECT_PENDING(stream);
  EXPECT_CLOSED(gate);
  gate.open_and_wait(stream);
  for (size_t row : range(height))
    ASSERT_EQ(std::memcmp(result.data() + row * pitch, source.data() + row * pitch, width), 0)
        << "row " << row;
}

TEST_F(Copies, RowsMayBeFurtherApartThanARuntimeTakes) {
  constexpr size_t pitch = 1UL << 31, height = 3;
  void* const mapped = mmap(nullptr, pitch * height, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const rows = static_cast<unsigned char*>(mapped);
  for (size_t row : range(height)) rows[row * pitch] = static_cast<unsigned char>(row + 1);
  const Stream stream;
  DeviceBytes packed{height, stream};
  EXPECT_EQ(copy_2d(stream, packed.data(), 1, rows, pitch, 1, height, Pageable::block),
            CopyResult::blocked);
  for (size_t row : range(height)) EXPECT_EQ(get(stream, packed, row), row + 1);
  set(stream, packed, 2, 9);
  EXPECT_EQ(copy_3d(stream, rows, {pitch, pitch * height}, packed.data(), {1, height},
                    {1, height, 1}, Pageable::block),
            CopyResult::blocked);
  EXPECT_EQ(rows[2 * pitch], 9);
  munmap(mapped, pitch * height);
}

TEST_F(Copies, ZeroWidthOrHeightIsANoOp) {
  Stream stream;
  unsigned char byte = 0;
  EXPECT_EQ(copy_2d(stream, nullptr, 0, nullptr, 0, 0, 5), CopyResult::nothing);
  EXPECT_EQ(copy_2d(stream, nullptr, 8, nullptr, 8, 8, 0), CopyResult::nothing);
  EXPECT_EQ(copy_2d(stream, &byte, 8, &byte, 8, 0, huge), CopyResult::nothing);
  fill_2d(stream, nullptr, 8, 1, 0, 5);
  fill_2d(stream, nullptr, 8, 1, 8, 0);
}

TEST_F(Copies, FillsByteRangesOfAnySize) {
  constexpr size_t size = 300;
  Stream stream;
  for (const MemoryKind kind : kinds) {
    Block block{kind, size, stream};
    for (const auto& [offset, count] :
         {std::pair<size_t, size_t>{0, size}, {1, 3}, {17, 64}, {3, 255}, {299, 1}}) {
      Bytes result(size);
      fill_bytes(stream, block.data(), 0, size);
      fill_bytes(stream, block.data() + offset, 0xab, count);
      copy_bytes(stream, result.data(), block.data(), size);
      stream.synchronize();
      for (size_t i : range(size))
        ASSERT_EQ(result[i], i >= offset && i < offset + count ? 0xab : 0) << i;
    }
  }
}

template <class T>
void expect_fill(StreamRef stream, const T& value) {
  for (const size_t count : {1UL, 2UL, 1001UL}) {
    DeviceBuffer<T> there{count, stream};
    std::vector<T> result(count);
    fill(stream, there, value);
    copy(stream, result, there);
    stream.synchronize();
    for (const T& element : result)
      ASSERT_EQ(std::memcmp(&element, &value, sizeof(T)), 0) << sizeof(T);
  }
}

TEST_F(Copies, FillsElementsOfAnySize) {
  Stream stream;
  expect_fill<unsigned char>(stream, 0x81);
  expect_fill<short>(stream, 0x1234);
  expect_fill<std::array<char, 3>>(stream, {'a', 'b', 'c'});
  expect_fill<int>(stream, -7);
  expect_fill<float>(stream, 0.5F);
  expect_fill<double>(stream, -1.25);
  expect_fill<std::array<int, 5>>(stream, {1, 2, 3, 4, 5});
}

TEST_F(Copies, FillsRows) {
  constexpr size_t pitch = 10, width = 7, height = 4;
  Stream stream;
  DeviceBytes there{pitch * height, stream};
  fill(stream, there, 1);
  fill_2d(stream, there.data(), pitch, 2, width, height);
  const Bytes result = read_back(stream, there);
  for (size_t i : range(result.size())) EXPECT_EQ(result[i], i % pitch < width ? 2 : 1) << i;
}

TEST_F(Copies, FillsReturnAtOnce) {
  Stream stream;
  DeviceBuffer<std::array<char, 3>> odd{large, stream};
  DeviceBuffer<double> even{large, stream};
  Gate gate{stream};
  fill(stream, odd, {'a', 'b', 'c'});
  fill(stream, even, 1.5);
  EXPECT_PENDING(stream);
  EXPECT_CLOSED(gate);
}

// A blocked copy must not delay a copy on another stream, however much of the shared staging memory
// the blocked copy uses.
void expect_independent(size_t size) {
  SKIP_IF(!Device::current().has_stream_memory_operations() && !host_functions_overlap(),
          "copies use host functions here, and the runtime runs one at a time");
  Stream held, other;
  DeviceBytes a{size, held}, b{size, other};
  const Bytes source = pattern(size);
  Bytes from_held(size), from_other(size);
  held.synchronize();
  other.synchronize();
  Gate gate{held};
  copy(held, a, source);
  copy(held, from_held, a);
  copy(other, b, source);
  copy(other, from_other, b);
  EXPECT_COMPLETES(other);
  EXPECT_TRUE(from_other == source);
  EXPECT_BEHIND(gate, held);
  EXPECT_TRUE(from_held == source);
}

TEST_F(Copies, CopiesOnTwoStreamsAreIndependent) { expect_independent(8 * mib); }
TEST_F(Copies, LargeCopiesOnTwoStreamsAreIndependent) { expect_independent(96 * mib); }

TEST_F(CopiesTwo, PeerAccessIsChangedWithoutHarmToACapture) {
  SKIP_IF(!first.can_access_peer(second), "the devices cannot reach each other's memory");
  const Stream stream{first};
  const Graph graph = capture(stream, [&] {
    enqueue_nothing(stream);
    first.enable_peer_access(second);
    first.disable_peer_access(second);
    enqueue_nothing(stream);
  });
  EXPECT_NODES(graph, 2U);
}

TEST_F(CopiesTwo, BetweenDevicesWithAndWithoutPeerAccess) {
  const Bytes source = pattern(large);
  Stream stream{first};
  Stream there{second};
  DeviceBytes a{large, stream}, b{large, there};
  stream.wait_stream(there);
  const auto round_trip = [&] {
    fill(there, b, 0);  // on a stream of its own device: other devices need peer access
    stream.wait_stream(there);
    copy(stream, a, source);
    copy(stream, b, a);
    fill(stream, a, 0);
    copy(stream, a, b);
    EXPECT_TRUE(read_back(stream, a) == source);
  };
  round_trip();
  if (!first.can_access_peer(second)) {
    EXPECT_ERROR(peer_access, first.enable_peer_access(second));
    return;
  }
  first.enable_peer_access(second);
  first.enable_peer_access(second);  // enabling twice is allowed
  round_trip();
  first.disable_peer_access(second);
  round_trip();
}

TEST_F(Copies, SpansLargerThanTheAddressSpaceAreRefused) {
  Stream stream;
  uint64_t number = 1;
  const size_t count = (1UL << 61) + 1;  // times 8 this overflows to 8 bytes
  const std::span<uint64_t> to{&number, count};
  const DeviceSpan<uint64_t> from{&number + 1, count};
  EXPECT_ERROR(invalid_argument, copy(stream, to, from));
  EXPECT_ERROR(invalid_argument, copy_operation(to, from));
  EXPECT_ERROR(invalid_argument, HostRegistration{to}.data());
  EXPECT_EQ(number, 1U);
}

}  // namespace conformance::copies_cases
