// SPDX-License-Identifier: Apache-2.0
// overlap() of types that are known at run time only.
#include <runnel/overlap_bytes.hpp>

#include "support.hpp"

namespace conformance::overlap_bytes_cases {
using OverlapOfBytes = Conformance;

constexpr auto nothing = [](StreamRef, const OverlapBytes&, const OverlapChunk&) {};

Ints numbered(size_t size) {
  Ints all(size);
  count_from(all, 1);
  return all;
}

TEST_F(OverlapOfBytes, AnyNumberOfInputsOfAnyWidth) {
  for (size_t count = 1; count <= 5; ++count) {
    std::vector<Ints> sources;
    std::vector<AnyOverlapEnd> inputs;
    for (size_t i : range(count)) sources.push_back(numbered(1003 * (i + 1)));
    for (size_t i : range(count)) inputs.emplace_back(by_rows(sources[i], i + 1));
    Ints out(1003 * count);
    const OverlapResult result =
        overlap_bytes(inputs, by_rows(out, count), {.chunk = 100},
                      [&](StreamRef stream, const OverlapBytes& b, const OverlapChunk& chunk) {
                        ASSERT_EQ(b.in.size(), count);
                        EXPECT_TRUE(b.count.empty());
                        for (size_t i : range(count)) {
                          EXPECT_EQ(b.in[i].size(), chunk.count * (i + 1) * sizeof(int));
                          copy_2d(stream, b.out.data() + i * sizeof(int), count * sizeof(int),
                                  b.in[i].data(), (i + 1) * sizeof(int), sizeof(int), chunk.count);
                        }
                      });
    EXPECT_EQ(result.items, 1003U);
    for (size_t item : range(1003UL))
      for (size_t i : range(count))
        ASSERT_EQ(out[item * count + i], static_cast<int>(item * (i + 1) + 1));
  }
}

TEST_F(OverlapOfBytes, SourcesSinksAndFilters) {
  int next = 0;
  auto source = from_source<int>([&](std::span<int> to) {
    size_t got = 0;
    while (got < to.size() && next < 1000) to[got++] = next++;
    return got;
  });
  Ints written;
  auto sink = to_sink<int>(
      [&](std::span<const int> part) { written.insert(written.end(), part.begin(), part.end()); });
  auto filter = filtered(sink);
  const std::array<AnyOverlapEnd, 1> inputs{source};
  overlap_bytes(inputs, filter, {.chunk = 64},
                [](StreamRef stream, const OverlapBytes& b, const OverlapChunk&) {
                  ASSERT_EQ(b.count.size(), 1U);
                  // the first of each chunk
                  copy(stream, b.out.subspan(0, sizeof(int)), b.in[0].subspan(0, sizeof(int)));
                  fill(stream, b.count, 1UL);
                });
  ASSERT_EQ(written.size(), 16U);
  for (size_t i : range(written.size())) EXPECT_EQ(written[i], static_cast<int>(64 * i));
}

TEST_F(OverlapOfBytes, ReductionsAndNoOutput) {
  const Ints in = numbered(1000);
  Ints firsts(10, -1);
  const std::array<AnyOverlapEnd, 1> inputs{in};
  overlap_bytes(inputs, per_chunk(firsts), {.chunk = 100},
                [](StreamRef stream, const OverlapBytes& b, const OverlapChunk&) {
                  EXPECT_EQ(b.out.size(), sizeof(int));
                  copy(stream, b.out, b.in[0].subspan(0, sizeof(int)));
                });
  for (size_t i : range(10UL)) EXPECT_EQ(firsts[i], static_cast<int>(100 * i + 1));
  size_t bytes = 0;
  overlap_bytes(inputs, no_output, {}, [&](StreamRef, const OverlapBytes& b, const OverlapChunk&) {
    EXPECT_TRUE(b.out.empty());
    bytes += b.in[0].size();
  });
  EXPECT_EQ(bytes, 1000 * sizeof(int));
}

TEST_F(OverlapOfBytes, WhatTheCompilerWouldRefuseIsRefused) {
  const Ints constant = numbered(10);
  Ints out(10);
  auto sink = to_sink<int>([](std::span<const int>) {});
  const auto refused = [&](std::vector<AnyOverlapEnd> inputs, const AnyOverlapEnd& output) {
    return code_of([&] { return overlap_bytes(inputs, output, {}, nothing); });
  };
  EXPECT_EQ(refused({}, out), errc::invalid_argument);
  EXPECT_EQ(refused({constant}, constant), errc::invalid_argument);
  EXPECT_EQ(refused({sink}, out), errc::invalid_argument);
  EXPECT_EQ(refused({no_output}, out), errc::invalid_argument);
  EXPECT_EQ(refused({per_chunk(out)}, no_output), errc::invalid_argument);
  EXPECT_EQ(refused({filtered(out)}, no_output), errc::invalid_argument);
  EXPECT_EQ(refused({constant, by_rows(constant, 2)}, out), errc::invalid_argument);
  EXPECT_EQ(refused({constant}, out), nothing_thrown);
}

// What would end before the run is refused: containers, sources and sinks without a name.
template <class End>
inline constexpr bool is_taken = std::is_constructible_v<AnyOverlapEnd, End>;
struct Read {
  size_t operator()(std::span<int>) const { return 0; }
};
static_assert(is_taken<Ints&> && is_taken<const Ints&> && is_taken<std::span<int>> &&
              is_taken<OverlapRows<int>>);
static_assert(is_taken<OverlapSource<int, Read>&> && is_taken<OverlapPerChunk<OverlapRows<int>>>);
static_assert(!is_taken<Ints> && !is_taken<std::array<int, 3>> &&
              !is_taken<OverlapSource<int, Read>>);

}  // namespace conformance::overlap_bytes_cases
