// SPDX-License-Identifier: Apache-2.0
#include "base/batch_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

namespace {

struct Node : runnel::detail::Batched<Node, 4> {};
using Cache = runnel::detail::BatchCache<Node>;

// Threads that live at the same time each need a node. The first must not take all that earlier
// threads have left.
TEST(BatchCache, DoesNotGrowWithEachThreadThatLivesForAMoment) {
  constexpr int together = 8;
  std::atomic_int made{0};
  for (int round = 0; round < 200; ++round) {
    std::barrier all_have_one{together};
    std::vector<std::jthread> threads;
    for (int i = 0; i < together; ++i)
      threads.emplace_back([&] {
        Node* node = Cache::take();
        if (node == nullptr) {
          node = new Node;  // the cache never frees
          ++made;
        }
        all_have_one.arrive_and_wait();
        Cache::give(node);
      });
  }
  EXPECT_GE(made, together);
  EXPECT_LE(made, 100);
}

}  // namespace
