// SPDX-License-Identifier: Apache-2.0
// Copies whose caller says when the source may be read, and what memory it is.
#include <sys/mman.h>

#include "support.hpp"

namespace conformance::copy_options_cases {
using CopyOptionsCases = Conformance;

CopyOptions any_time() { return {.source = SourceAccess::any_time}; }

bool reads_pageable_itself(Device device) {
  return streams_are_threads() || device.can_use_host_page_tables();
}

/// Copies to a device behind a gate; returns the copies' result. All bytes have to arrive.
CopyResult copied_behind_gate(size_t bytes, const CopyOptions& options) {
  const Stream stream;
  DeviceBytes there{bytes, stream};
  const Bytes source = pattern(bytes, 3);
  Bytes back(bytes);
  stream.synchronize();
  Gate gate{stream};
  EXPECT_TRUE(gate.reached());
  const CopyResult done = copy_bytes(stream, there.data(), source.data(), bytes, options);
  gate.open();
  copy_bytes(stream, back.data(), there.data(), bytes);
  stream.synchronize();
  EXPECT_TRUE(back == source) << bytes;
  return done;
}

TEST_F(CopyOptionsCases, SmallSourcesAreReadAtTheCallOnABusyStream) {
  SKIP_IF(reads_pageable_itself(device()), "the stream reads pageable memory itself");
  // Without stream values nothing tells which part of its ring a busy stream has passed.
  const CopyResult early =
      device().has_stream_memory_operations() ? CopyResult::inlined : CopyResult::staged;
  for (const size_t bytes : {1UL, 4 * kib, 32 * kib}) {
    EXPECT_EQ(copied_behind_gate(bytes, {}), CopyResult::staged) << bytes;
    EXPECT_EQ(copied_behind_gate(bytes, any_time()), early) << bytes;
  }
}

TEST_F(CopyOptionsCases, CopiesOfAnySizeArriveBehindAGate) {
  for (const size_t bytes : {33 * kib, 256 * kib, 257 * kib, 5000 * kib, 80 * kib * kib}) {
    drop(copied_behind_gate(bytes, any_time()));
    drop(copied_behind_gate(bytes, {.from_kind = MemoryKind::pageable}));
  }
}

/// Zeros that nobody has read yet, so that the system has no page for them.
class UnreadMemory {
 public:
  explicit UnreadMemory(size_t bytes)
      : bytes_{bytes},
        at_{mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)} {
    EXPECT_EQ(madvise(at_, bytes, MADV_NOHUGEPAGE), 0);
  }
  UnreadMemory(const UnreadMemory&) = delete;
  UnreadMemory& operator=(const UnreadMemory&) = delete;
  ~UnreadMemory() { munmap(at_, bytes_); }
  const void* data() const { return at_; }
  bool is_read() const {
    unsigned char is_there = 0;
    EXPECT_EQ(mincore(at_, 1, &is_there), 0);
    return (is_there & 1) != 0;
  }

 private:
  size_t bytes_;
  void* at_;
};

TEST_F(CopyOptionsCases, LargeSourcesAreReadAheadOfTheStream) {
  SKIP_IF(reads_pageable_itself(device()), "the stream reads pageable memory itself");
  SKIP_IF(!device().has_stream_memory_operations(),
          "a host function moves the bytes, in stream order");
  constexpr size_t bytes = 1024 * kib;
  const UnreadMemory in_order{bytes}, early{bytes};
  const Stream stream, other;
  DeviceBytes there{2 * bytes, stream};
  fill(stream, there, static_cast<unsigned char>(0xEE));
  stream.synchronize();
  {
    Gate gate{stream};
    other.wait_stream(stream);
    ASSERT_TRUE(gate.reached());
    EXPECT_EQ(copy_bytes(stream, there.data(), in_order.data(), bytes), CopyResult::staged);
    EXPECT_EQ(copy_bytes(other, there.data() + bytes, early.data(), bytes, any_time()),
              CopyResult::staged);
    EXPECT_EVENTUALLY(early.is_read());
    EXPECT_FALSE(in_order.is_read());  // workers take what was submitted first, if they may
  }
  stream.wait_stream(other);
  EXPECT_ALL(read_back(stream, there), 0);
}

TEST_F(CopyOptionsCases, MemoryOfTheHostIsNoDevices) {
  SKIP_IF(!streams_are_threads(), "a device's backend does not look up what the caller knows");
  const Stream stream;
  Bytes values(100), others(100);
  const DeviceSpan<unsigned char> wrong{values.data(), values.size()};
  EXPECT_ERROR(invalid_argument, copy(stream, wrong, others));
  EXPECT_ERROR(invalid_argument, copy(stream, others, wrong));
  EXPECT_ERROR(invalid_argument, fill(stream, wrong, std::uint8_t{1}));
  EXPECT_ERROR(invalid_argument, copy_bytes(stream, values.data(), others.data(), 100,
                                            {.to_kind = MemoryKind::device}));
  const std::vector list{copy_operation(wrong, others)};
  EXPECT_ERROR(invalid_argument, copy_batch(stream, list));
}

TEST_F(CopyOptionsCases, RowsRangesAndListsTakeOptions) {
  const Stream stream;
  DeviceInts there{1000, stream};
  Ints source(1000, 5), back(1000);
  copy(stream, there, source,
       {.source = SourceAccess::any_time, .from_kind = MemoryKind::pageable});
  copy_2d(stream, back.data(), 40, there.data(), 40, 40, 50,
          {.to_kind = MemoryKind::pageable, .from_kind = MemoryKind::device});
  const std::array operations{
      copy_operation(std::span{back}.subspan(500), there.span().subspan(0, 500))};
  const CopyBatchResult done = copy_batch(stream, operations, {.to_kind = MemoryKind::pageable});
  stream.synchronize();
  EXPECT_EQ(done.nothing + done.blocked, 0U);
  EXPECT_EQ(back, source);
}

TEST_F(CopyOptionsCases, ThePolicyIsAnOption) {
  SKIP_IF(streams_are_threads(), "the stream reads pageable memory itself");
  const Stream stream;
  DeviceInts there{1000, stream};
  Ints source(1000, 5);
  const auto refused = [&] { return copy(stream, there, source, {.pageable = Pageable::refuse}); };
  EXPECT_EQ(code_of(refused), errc::not_permitted);
  {
    const PageableGuard refusing{Pageable::refuse};
    EXPECT_ERROR(not_permitted, copy(stream, there, source, CopyOptions{}));
  }
  EXPECT_ERROR(invalid_argument, copy_bytes(stream, there.data(), nullptr, 4, CopyOptions{}));
  stream.synchronize();
}

}  // namespace conformance::copy_options_cases
