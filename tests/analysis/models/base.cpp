// SPDX-License-Identifier: Apache-2.0
/// Checks of the lock and the cache that the library's lists are built with.
#include "base/batch_cache.hpp"
#include "base/spin_lock.hpp"
#include "support.hpp"

#include <utility>

namespace {

using namespace checks;
using model::expect;

void spin_lock() {
  struct Counter {
    runnel::detail::SpinLock lock;
    int number = 0;
  };
  auto& counter = lasting<Counter>();
  const auto add = [&] {
    repeat(2, [&] {
      const std::lock_guard lock{counter.lock};
      ++counter.number;
    });
  };
  together(add, add, add);
  expect(counter.number == 6, "a turn was lost");
}

struct Node : runnel::detail::Batched<Node, 3> {
  int uses = 0;
};
using Cache = runnel::detail::BatchCache<Node, 1>;

void use(Node* node) {
  if (node == nullptr) return;
  expect(++node->uses == 1, "two threads have one node");
  --node->uses;
}
void take_and_give() {
  if (Node* const node = Cache::take()) {
    use(node);
    Cache::give(node);
  }
}
/// Requires: a batch may be so large.
Node* batch_of(size_t size) {
  Node* const first = new Node{};
  for (first->count = 0; first->count + 1 < size; ++first->count)
    first->others[first->count] = new Node{};
  return first;
}
/// As many nodes as were given to the cache must be there after all threads ended.
void expect_nodes(int count) {
  int found = 0;
  while (Node* const node = Cache::take()) {
    expect(++node->uses == 1, "a node is in the cache twice");
    ++found;
  }
  expect(found == count, "a node was lost");
}

void batch_cache() {
  together([] { Cache::share(batch_of(2)), take_and_give(); },
           [] { take_and_give(), Cache::share(batch_of(1)); },
           [] { take_and_give(), take_and_give(); });
  expect_nodes(3);
}

/// Threads that are ending take single nodes, after their own part of the cache has gone.
void batch_cache_at_thread_end() {
  Cache::share(batch_of(1));
  // on the stack, so that a thread which takes one node puts the rest back
  Cache::share(batch_of(2));
  const auto end_with_a_node = [] {
    // called after the cache's own function
    runnel::detail::at_thread_end([](void*) { take_and_give(); }, nullptr);
    take_and_give();
  };
  together(end_with_a_node, end_with_a_node, [] { take_and_give(); });
  expect_nodes(3);
}

/// A full batch goes to all threads at once.
void batch_cache_exchange(sync::Atomic<int>& given) {
  together(
      [&] {
        const model::Calm calm;
        repeat(4, [&] { Cache::give(new Node{}); });
        given.store(1, std::memory_order_relaxed);
      },
      [] { take_and_give(), take_and_give(); }, [] { take_and_give(); });
  expect_nodes(4);
}

}  // namespace

MODEL_CHECKS(CHECK(spin_lock), CHECK(batch_cache), CHECK(batch_cache_at_thread_end),
             CHECK(batch_cache_exchange))
