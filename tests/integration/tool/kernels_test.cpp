// SPDX-License-Identifier: Apache-2.0
/// The command's kernels as a GPU runs them: many threads in blocks, which share memory and meet at
/// barriers.
#include "../../../tools/byte_kernel.hpp"
#include "../../../tools/byte_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using std::size_t;

namespace {

constexpr unsigned blocks = 3, threads = 8;

struct Team {
  unsigned block, thread;
  std::barrier<>* meeting;

  unsigned rank_in_block() const { return thread; }
  static unsigned block_size() { return threads; }
  size_t rank() const { return block * threads + thread; }
  static size_t size() { return size_t{blocks} * threads; }
  void synchronize_block() const { meeting->arrive_and_wait(); }
  template <class T>
  static void add(T& to, T number) {
    std::atomic_ref{to} += number;
  }
};

/// Calls `kernel(team, scratch)` in each thread. The threads of a block share one scratch buffer,
/// which other blocks do not use.
template <class Kernel>
void launch(Kernel kernel) {
  std::vector<std::unique_ptr<std::barrier<>>> meetings;
  std::vector<tool::Scratch> scratches(blocks);
  std::vector<std::jthread> running;
  for (unsigned block = 0; block < blocks; ++block) {
    meetings.push_back(std::make_unique<std::barrier<>>(threads));
    for (unsigned thread = 0; thread < threads; ++thread)
      running.emplace_back([=, &scratch = scratches[block], meeting = meetings[block].get()] {
        kernel(Team{block, thread, meeting}, scratch);
      });
  }
}

std::vector<unsigned char> bytes(size_t count) {
  std::mt19937_64 random{count};
  std::vector<unsigned char> made(count);
  for (unsigned char& each : made) each = static_cast<unsigned char>(random());
  return made;
}

TEST(Kernels, MapAndCountBytes) {
  for (const size_t size : {0U, 1U, 23U, 10'007U}) {
    const auto in = bytes(size);
    std::vector<tool::ByteCount> counts(256);
    std::vector<unsigned char> out(size);
    const tool::ByteMap map = tool::byte_map("invert");
    launch([&](Team team, tool::Scratch& scratch) {
      tool::map_and_count(team, scratch, in.data(), out.data(), size, map, counts.data());
    });
    for (size_t byte = 0; byte < 256; ++byte)
      EXPECT_EQ(counts[byte], static_cast<tool::ByteCount>(
                                  std::ranges::count(in, static_cast<unsigned char>(byte))));
    EXPECT_TRUE(std::ranges::equal(in, out, [](unsigned char a, unsigned char b) {
      return b == static_cast<unsigned char>(~a);
    }));
  }
}

}  // namespace
