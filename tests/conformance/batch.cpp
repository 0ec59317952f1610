// SPDX-License-Identifier: Apache-2.0

#include "support.hpp"

namespace conformance::batch_cases {
using Batch = Conformance;

constexpr size_t count = 64;
constexpr size_t piece = 3000;

TEST_F(Batch, CopiesAllOperationsInStreamOrder) {
  Stream stream;
  PinnedInts source{count * piece}, result{count * piece};
  DeviceInts there{count * piece, stream};
  std::vector<CopyOperation> up, down;
  for (size_t i : range(count)) {
    const size_t other = (count - 1 - i) * piece;
    up.push_back(copy_operation(there.span().subspan(other, piece),
                                std::span{source.data() + i * piece, piece}));
    down.push_back({result.data() + i * piece, there.data() + other, piece * sizeof(int)});
  }
  stream.synchronize();
  Gate gate{stream};
  stream.launch_host_func([&] { count_from(source, 5); });
  EXPECT_EQ(copy_batch(stream, up), (CopyBatchResult{.direct = count}));
  EXPECT_EQ(copy_batch(stream, down), (CopyBatchResult{.direct = count}));
  bool right = false;
  stream.launch_host_func(
      [&] { right = std::ranges::equal(source, result) && result[piece] == 5 + int{piece}; });
  EXPECT_BEHIND(gate, stream);
  EXPECT_TRUE(right);
}

/// The blocks may be neighbours on the device, but no copy of a runtime may reach over the end of a
/// block.
TEST_F(Batch, FillsBlocksThatAreNeighbours) {
  constexpr size_t blocks = 12, size = 64 * kib;
  Stream stream;
  std::vector<DeviceBytes> there;
  repeat(blocks, [&] { there.emplace_back(size, stream); });
  const Bytes source = pattern(blocks * size, 3);
  Bytes back(blocks * size);
  std::vector<CopyOperation> up, down;
  for (size_t i : range(blocks)) {
    up.push_back({there[i].data(), source.data() + i * size, size});
    down.push_back({back.data() + i * size, there[i].data(), size});
  }
  copy_batch(stream, up);
  copy_batch(stream, down);
  stream.synchronize();
  EXPECT_TRUE(back == source);
}

TEST_F(Batch, MixesKindsOfMemory) {
  Stream stream;
  Bytes ordinary(mib, 1), back(mib);
  PinnedBytes pinned{1000}, pinned_too{1000};
  std::memset(pinned.data(), 2, 1000);
  DeviceBytes a{ordinary.size(), stream}, b{1000, stream}, c{1000, stream};
  const std::vector<CopyOperation> up{
      copy_operation(a, ordinary), copy_operation(b, pinned), copy_operation(pinned_too, pinned),
      CopyOperation{nullptr, nullptr, 0}, copy_operation(c, pinned)};
  const CopyBatchResult result = copy_batch(stream, up);
  EXPECT_EQ(result.direct + result.staged + result.inlined, 4U);
  EXPECT_EQ(result.nothing, 1U);
  const std::vector<CopyOperation> down{copy_operation(back, a),
                                        CopyOperation{pinned.data(), b.data(), 500}};
  copy_batch(stream, down);
  stream.synchronize();
  EXPECT_EQ(back, ordinary);
  EXPECT_EQ(pinned_too[999], 2);
}

TEST_F(Batch, ValidatesAllOperationsBeforeEnqueueingAny) {
  Stream stream;
  PinnedInts memory{100}, other{100};
  std::ranges::fill(memory, 1);
  std::ranges::fill(other, 2);
  const CopyOperation fine = copy_operation(memory, other);
  const auto refused = [&](CopyOperation wrong) {
    const std::vector<CopyOperation> operations{fine, wrong};
    return code_of([&] { return copy_batch(stream, operations); });
  };
  EXPECT_EQ(refused({nullptr, other.data(), 4}), errc::invalid_argument);
  EXPECT_EQ(refused({memory.data(), nullptr, 4}), errc::invalid_argument);
  EXPECT_EQ(refused({nullptr, nullptr, 4}), errc::invalid_argument);
  EXPECT_EQ(refused({memory.data(), other.data(), huge}), errc::invalid_argument);
  EXPECT_EQ(refused({memory.data(), memory.data() + 1, 8}), errc::invalid_argument);
  Ints ordinary(100);
  const std::vector<CopyOperation> with_ordinary{fine, copy_operation(memory, ordinary)};
  EXPECT_ERROR(not_permitted, copy_batch(stream, with_ordinary, Pageable::refuse));
  try {
    copy_batch(stream, with_ordinary, Pageable::refuse);
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string{error.what()}.find("runnel: could not copy a batch: operations[1] of 2: "), 0U)
        << error.what();
    EXPECT_STREQ(error.operation(), "copy a batch");
  }
  stream.synchronize();
  EXPECT_EQ(memory[0], 1);
  const Ints shorter(99);
  EXPECT_ERROR(invalid_argument, copy_operation(memory, shorter));
}

TEST_F(Batch, LargeAndSmallCopiesOnAnIdleStreamDoNotHoldTheCaller) {
  constexpr size_t large = 32 * mib, small = 1000, all = large + 3 * small;
  Stream stream;
  PinnedBytes source{all}, back{all};
  std::ranges::copy(pattern(all, 3), source.begin());
  DeviceBytes there{all, stream};
  std::vector<CopyOperation> up;
  for (size_t at = 0; at < all; at += up.back().bytes)
    up.push_back({there.data() + at, source.data() + at, at == small ? large : small});
  bool is_held = true;  // unless the call is short once: this thread may lose its core
  for (int round = 0; round < 20 && is_held; ++round) {
    stream.synchronize();
    const auto start = Clock::now();
    copy_batch(stream, up);
    const auto call = Clock::now() - start;
    stream.synchronize();
    is_held = call > (Clock::now() - start) / 2;
  }
  EXPECT_FALSE(is_held);
  copy(stream, back, there);
  stream.synchronize();
  EXPECT_SAME(back, source);
}

// With STANDIN_CHANNELS=1 the gate blocks the list's stream, too.
TEST_F(Batch, ASmallSourceDoesNotHoldTheCallerBehindALargerOne) {
  constexpr size_t larger = 7 * kib, all = 10 * kib;
  const Stream stream, other;
  PinnedBytes source{all}, back{all};
  std::ranges::copy(pattern(all, 3), source.begin());
  DeviceBytes there{all, stream};
  stream.synchronize();
  Gate gate{other};
  std::future<void> listed = std::async(std::launch::async, [&] {
    const CopyOperation list[] = {{there.data(), source.data(), larger},
                                  {there.data() + larger, source.data() + larger, all - larger}};
    copy_batch(stream, list);
  });
  EXPECT_EQ(listed.wait_for(10s), std::future_status::ready);
  gate.open();
  listed.get();
  copy(stream, back, there);
  stream.synchronize();
  EXPECT_SAME(back, source);
}

TEST_F(Batch, CopiesNoneOrOneOperation) {
  Stream stream;
  PinnedInts memory{4}, other{4};
  std::ranges::fill(other, 3);
  EXPECT_EQ(copy_batch(stream, {}), CopyBatchResult{});
  const std::vector<CopyOperation> itself{{memory.data(), memory.data(), 16}};
  EXPECT_EQ(copy_batch(stream, itself), (CopyBatchResult{.nothing = 1}));
  const std::vector<CopyOperation> one{copy_operation(memory, other)};
  copy_batch(stream, one);
  stream.synchronize();
  EXPECT_EQ(memory[3], 3);
}

TEST_F(Batch, RunsOnBothDefaultStreams) {
  PinnedInts source{2 * piece}, result{2 * piece};
  count_from(source, 0);
  const std::array streams{default_stream(), thread_default()};
  for (const StreamRef stream : streams) {
    DeviceInts there{2 * piece, stream};
    const std::vector<CopyOperation> up{
        {there.data(), source.data(), piece * sizeof(int)},
        {there.data() + piece, source.data() + piece, piece * sizeof(int)}};
    copy_batch(stream, up);
    copy(stream, result, there);
    stream.synchronize();
    EXPECT_SAME(source, result);
  }
}

}  // namespace conformance::batch_cases
