// SPDX-License-Identifier: Apache-2.0
/// Tests of resolve(), and of what a CopyCall knows about its stream.
#include "copy/facts.hpp"
#include "function/host_writers.hpp"

#include "../conformance/support.hpp"

using namespace runnel;
using namespace runnel::detail;
using conformance::Gate;

namespace {

constexpr std::size_t bytes = 4096;

class CopyFactsOf : public testing::Test {
 protected:
  void SetUp() override { SKIP_IF(Device::count() == 0, "there is no device"); }
};

CopyRequest request_of(unsigned char* to, const unsigned char* from, Pageable policy,
                       std::size_t size = bytes) {
  return {{to, size, from, size, size, 1}, std::nullopt, std::nullopt, policy};
}
CopyFacts resolved(StreamRef stream, const CopyRequest& request) {
  CopyCall call{stream, "test facts"};
  return resolve(call, request);
}

TEST_F(CopyFactsOf, EachKindOfMemory) {
  const Stream stream;
  DeviceBuffer<unsigned char> on_device(bytes, stream);
  PinnedBuffer<unsigned char> pinned(bytes);
  std::vector<unsigned char> pageable(bytes), registered(bytes);
  const HostRegistration registration{registered.data(), bytes};
  struct Row {
    const char* what;
    unsigned char* memory;
    std::optional<MemoryKind> known;
    MemoryFacts expected;
  };
  const std::vector<Row> table{
      {"pageable", pageable.data(), {}, {MemoryKind::pageable, false}},
      {"pinned by runnel", pinned.data(), {}, {MemoryKind::pinned, true}},
      {"registered", registered.data(), {}, {MemoryKind::pinned, false}},
      {"device", on_device.data(), {}, {MemoryKind::device, false}},
      {"registered, known", registered.data(), MemoryKind::pinned, {MemoryKind::pinned, true}},
      {"device, known", on_device.data(), MemoryKind::device, {MemoryKind::device, true}},
      {"a wrong kind is taken", pageable.data(), MemoryKind::managed, {MemoryKind::managed, true}},
  };
  PinnedBuffer<unsigned char> other(bytes);
  for (const Row& row : table) {
    CopyRequest to = request_of(row.memory, other.data(), Pageable::block);
    CopyRequest from = request_of(other.data(), row.memory, Pageable::block);
    to.to_kind = from.from_kind = row.known;
    for (const MemoryFacts& side : {resolved(stream, to).to, resolved(stream, from).from}) {
      EXPECT_EQ(side.kind, row.expected.kind) << row.what;
      EXPECT_EQ(side.in_one_block, row.expected.in_one_block) << row.what;
    }
    EXPECT_EQ(resolved(stream, from).may_be_pinned_in_parts(),
              row.expected.kind == MemoryKind::pinned && !row.expected.in_one_block)
        << row.what;
  }
}

TEST_F(CopyFactsOf, MemoryOfTwoDevices) {
  SKIP_IF(Device::count() < 2, "there is one device");
  const Stream stream{Device{0}}, other{Device{1}};
  DeviceBuffer<unsigned char> a(bytes, stream), b(bytes, stream), far(bytes, other);
  for (const std::optional<MemoryKind> known :
       {std::optional<MemoryKind>{}, {MemoryKind::device}}) {
    CopyRequest near_request = request_of(a.data(), b.data(), Pageable::block);
    CopyRequest far_request = request_of(a.data(), far.data(), Pageable::block);
    near_request.from_kind = far_request.from_kind = far_request.to_kind = known;
    EXPECT_FALSE(resolved(stream, near_request).are_on_two_devices());
    EXPECT_TRUE(resolved(stream, far_request).are_on_two_devices());
    EXPECT_EQ(resolved(stream, far_request).from.owner, 1);
  }
}

TEST_F(CopyFactsOf, MemoryThatDoesNotMatterIsNotLookedAt) {
  const Stream stream;
  std::vector<unsigned char> a(bytes), b(bytes);
  const CopyFacts empty = resolved(stream, request_of(nullptr, nullptr, Pageable::block, 0));
  const CopyFacts same = resolved(stream, request_of(a.data(), a.data(), Pageable::block));
  EXPECT_FALSE(empty.has_pageable_side() || same.has_pageable_side());
  const CopyFacts facts = resolved(stream, request_of(a.data(), b.data(), Pageable::stage));
  EXPECT_EQ(facts.has_pageable_side(), !facts.runtime_takes_any_memory);
}

/// Whether the stream's use was counted: then the pool does not hand the block out again while the
/// gate is closed.
template <class Use>
bool counts_a_use(Use use) {
  PinnedPool::trim();
  const Stream stream;
  const Gate gate{stream};
  PinnedBuffer<unsigned char> block(bytes);
  const unsigned char* const address = block.data();
  {
    CopyCall call{stream, "test facts"};
    use(call, block.data());
  }
  block = {};
  return PinnedBuffer<unsigned char>(bytes).data() != address;
}

TEST_F(CopyFactsOf, EachSideCountsAUse) {
  EXPECT_FALSE(counts_a_use([](CopyCall&, unsigned char*) {}));
  std::vector<unsigned char> other(bytes);
  for (const Pageable policy : {Pageable::stage, Pageable::block}) {
    EXPECT_TRUE(counts_a_use([&](CopyCall& call, unsigned char* block) {
      static_cast<void>(resolve(call, request_of(block, other.data(), policy)));
    }));
    EXPECT_TRUE(counts_a_use([&](CopyCall& call, unsigned char* block) {
      static_cast<void>(resolve(call, request_of(other.data(), block, policy)));
    }));
  }
  EXPECT_TRUE(counts_a_use([&](CopyCall& call, unsigned char* block) {
    static_cast<void>(
        resolve(call, FillRequest{block, bytes, bytes, 1, other.data(), 1, std::nullopt}));
  }));
}

TEST_F(CopyFactsOf, ASourceMayBeReadBehindWorkThatCannotWriteIt) {
  const Stream stream;
  const CopyCall call{stream, "test facts"};
  for (const SourceAccess access : {SourceAccess::automatic, SourceAccess::stream_order})
    EXPECT_TRUE(call.may_read_now(access, true)) << "the stream is idle";
  const Gate gate{stream};
  EXPECT_FALSE(call.may_read_now(SourceAccess::stream_order, false));
  EXPECT_FALSE(call.may_read_now(SourceAccess::automatic, true));
  EXPECT_EQ(call.may_read_now(SourceAccess::automatic, false),
            backend::copies_to_pageable_are_complete());
  EXPECT_TRUE(call.may_read_now(SourceAccess::any_time, true));
}

TEST(HostWritersOf, ARangeCountsUntilItsEnd) {
  HostWriters writers;
  std::vector<unsigned char> memory(100);
  unsigned char* const at = memory.data();
  SKIP_IF(backend::copies_pageable_asynchronously(), "nobody asks");
  EXPECT_FALSE(writers.may_write(at, 100));
  {
    RangeWriter writer{at + 20, 10, writers};
    RangeWriter moved{std::move(writer)};
    EXPECT_TRUE(writers.may_write(at, 21));
    EXPECT_TRUE(writers.may_write(at + 29, 71));
    EXPECT_FALSE(writers.may_write(at, 20));
    EXPECT_FALSE(writers.may_write(at + 30, 70));
    moved.end();
    EXPECT_FALSE(writers.may_write(at, 100));
  }
  std::vector<RangeWriter> many;
  for (int i = 0; i < 100; ++i) many.emplace_back(at + i, 1, writers);
  EXPECT_TRUE(writers.may_write(at + 50, 1));
  EXPECT_TRUE(writers.may_write(at + 99, 1)) << "more than the list has room for";
  many.clear();
  EXPECT_FALSE(writers.may_write(at, 100));
}

TEST(HostWritersOf, AFunctionMayWriteAnyMemory) {
  SKIP_IF(backend::copies_pageable_asynchronously(), "nobody asks");
  HostWriters writers;
  writers.begin_functions(2);
  EXPECT_TRUE(writers.may_write(&writers, 1));
  writers.end_functions(1);
  EXPECT_TRUE(writers.may_write(&writers, 1));
  writers.end_functions(1);
  EXPECT_FALSE(writers.may_write(&writers, 1));
}

}  // namespace
