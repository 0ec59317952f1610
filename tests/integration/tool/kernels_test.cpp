// SPDX-License-Identifier: Apache-2.0
/// The command's kernels as a GPU runs them: many threads in blocks, which share memory and meet at
/// barriers.
#include "../../../tools/byte_kernel.hpp"
#include "../../../tools/byte_map.hpp"
#include "../../../tools/number_kernel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr unsigned blocks = 3, threads = 8;

struct Team {
  unsigned block, thread;
  std::barrier<>* meeting;

  [[nodiscard]] unsigned rank_in_block() const { return thread; }
  [[nodiscard]] static unsigned block_size() { return threads; }
  [[nodiscard]] std::size_t rank() const { return block * threads + thread; }
  [[nodiscard]] static std::size_t size() { return std::size_t{blocks} * threads; }
  void synchronize_block() const { meeting->arrive_and_wait(); }
  template <class T>
  static void add(T& to, T number) {
    std::atomic_ref{to} += number;
  }
};

/// Calls `kernel(team, scratch)` in each thread. The threads of a block share one scratch buffer,
/// which other blocks do not use.
template <class Scratch, class Kernel>
void launch(Kernel kernel) {
  std::vector<std::unique_ptr<std::barrier<>>> meetings;
  std::vector<Scratch> scratches(blocks);
  std::vector<std::jthread> running;
  for (unsigned block = 0; block < blocks; ++block) {
    meetings.push_back(std::make_unique<std::barrier<>>(threads));
    for (unsigned thread = 0; thread < threads; ++thread)
      running.emplace_back([=, &scratch = scratches[block], meeting = meetings[block].get()] {
        kernel(Team{block, thread, meeting}, scratch);
      });
  }
}

template <class Number>
std::vector<Number> numbers(std::size_t count) {
  std::mt19937_64 random{count};
  std::vector<Number> made(count);
  for (Number& each : made)
    each = std::is_integral_v<Number>
               ? static_cast<Number>(random())
               : static_cast<Number>(static_cast<double>(random() >> 40) / 64 - 1e5);
  return made;
}

TEST(Kernels, CountBytes) {
  for (const std::size_t size : {0U, 1U, 23U, 10'007U}) {
    const auto in = numbers<unsigned char>(size);
    std::vector<tool::ByteCount> counts(256), mapped_counts(256);
    std::vector<unsigned char> out(size);
    launch<tool::Scratch>([&](Team team, tool::Scratch& scratch) {
      tool::count_bytes(team, scratch, in.data(), size, counts.data());
    });
    const tool::ByteMap map = tool::byte_map("invert");
    launch<tool::Scratch>([&](Team team, tool::Scratch& scratch) {
      tool::map_and_count(team, scratch, in.data(), out.data(), size, map, mapped_counts.data());
    });
    for (std::size_t byte = 0; byte < 256; ++byte)
      EXPECT_EQ(counts[byte], static_cast<tool::ByteCount>(
                                  std::ranges::count(in, static_cast<unsigned char>(byte))));
    EXPECT_EQ(mapped_counts, counts);
    EXPECT_TRUE(std::ranges::equal(in, out, [](unsigned char a, unsigned char b) {
      return b == static_cast<unsigned char>(~a);
    }));
  }
}

template <class Number>
class SumNumbers : public testing::Test {};
using Types = testing::Types<std::uint8_t, std::int32_t, std::int64_t, float, double>;
TYPED_TEST_SUITE(SumNumbers, Types);

TYPED_TEST(SumNumbers, IsTheSumOfAllBlocks) {
  using Sum = tool::SumOf<TypeParam>;
  using Scratch = std::array<Sum, threads>;
  for (const std::size_t size : {1U, 23U, 10'007U}) {
    const auto in = numbers<TypeParam>(size);
    std::vector<Sum> sums(blocks);
    launch<Scratch>([&](Team team, Scratch& scratch) {
      tool::sum_numbers(team, scratch.data(), in.data(), size, sums.data());
    });
    Sum all;
    for (const Sum& each : sums) all.add(each);
    EXPECT_EQ(all.least, *std::ranges::min_element(in));
    EXPECT_EQ(all.most, *std::ranges::max_element(in));
    if constexpr (std::is_integral_v<TypeParam>) {
      __extension__ using Exact = __int128;
      Exact wanted = 0;
      for (const TypeParam each : in) wanted += each;
      EXPECT_TRUE(Exact{all.high} * (Exact{1} << 32) + all.low == wanted);
    } else {
      // multiples of 1/64, so that nothing is rounded
      EXPECT_EQ(all.sum, std::accumulate(in.begin(), in.end(), 0.0));
      EXPECT_EQ(all.nans, 0U);
    }
  }
}

TEST(FloatSum, CountsNans) {
  tool::FloatSum sum;
  for (const double each : {1.0, std::nan(""), -2.0}) sum.add(each);
  EXPECT_TRUE(std::isnan(sum.sum));
  EXPECT_EQ(sum.nans, 1U);
  EXPECT_EQ(sum.least, -2);
  EXPECT_EQ(sum.most, 1);
}

}  // namespace
