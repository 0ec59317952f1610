// SPDX-License-Identifier: Apache-2.0
/// Checks of the lock and the cache that the library's lists are built with, and of what is known
/// of the work ahead in a stream.
#include "base/batch_cache.hpp"
#include "base/spin_lock.hpp"
#include "stream/work_ahead.hpp"
#include "support.hpp"

#include <iterator>
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
    for (int i = 0; i < 2; ++i) {
      const std::lock_guard lock{counter.lock};
      ++counter.number;
    }
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
[[nodiscard]] Node* batch_of(std::size_t size) {
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
void batch_cache_exchange() {
  auto& given = lasting<sync::Atomic<int>>();
  together(
      [&] {
        const model::Calm calm;
        for (int i = 0; i < 4; ++i) Cache::give(new Node{});
        given.store(1, std::memory_order_relaxed);
      },
      [] { take_and_give(), take_and_give(); }, [] { take_and_give(); });
  expect_nodes(4);
}

/// A stream of several threads, and the block of its short copies.
struct SharedStream {
  runnel::detail::WorkAhead ahead;
  sync::Mutex runtime;  // guards what the runtime knows
  bool is_idle = true;
  int done = 0;            // so often the stream was waited for
  sync::Mutex block_lock;  // guards the block
  int block = 0;
  // `done` when the last copy from the block was enqueued; it is complete once `done` is larger
  int block_read_at = -1;

  void wait() {
    runnel::detail::AheadScope scope{&ahead};
    {
      const std::lock_guard lock{runtime};
      is_idle = true;
      ++done;
    }
    scope.leaves(runnel::detail::Ahead::idle);
  }
  [[nodiscard]] bool query() {
    const std::lock_guard lock{runtime};
    return is_idle;
  }
  int enqueue() {
    const std::lock_guard lock{runtime};
    is_idle = false;
    return done;
  }
  [[nodiscard]] bool is_complete(int enqueued_at) {
    const std::lock_guard lock{runtime};
    return done > enqueued_at;
  }
  void copy_short_to_device() {
    using runnel::detail::Ahead;
    runnel::detail::AheadScope scope{&ahead};
    const std::lock_guard lock{block_lock};
    if (scope.known() == Ahead::uploads ||
        (!(scope.known() == Ahead::idle && scope.is_undisturbed()) && !query()))
      return;
    expect(block_read_at < 0 || is_complete(block_read_at),
           "the block is overwritten while the stream reads it");
    ++block;
    scope.begins_to_enqueue();
    block_read_at = enqueue();
    scope.leaves(Ahead::uploads);
  }
  void copy_to_host_and_back() {
    using runnel::detail::Ahead;
    int enqueued_at = 0;
    {
      runnel::detail::AheadScope scope{&ahead};
      scope.begins_to_enqueue();
      enqueued_at = enqueue();
      scope.leaves(Ahead::unknown);
    }
    runnel::detail::AheadScope scope{&ahead};
    if (scope.known() != Ahead::unknown)
      expect(is_complete(enqueued_at), "a copy reads what one ahead of it has yet to write");
    scope.leaves(scope.known());
  }
  void call_host_function() {
    const int enqueued_at = enqueue();
    ahead.invalidate();
    runnel::detail::AheadScope scope{&ahead};
    if (scope.known() != runnel::detail::Ahead::unknown)
      expect(is_complete(enqueued_at), "a copy reads before a host function has written");
    scope.leaves(scope.known());
  }
};

void work_ahead_of_short_copies() {
  auto& stream = lasting<SharedStream>();
  together([&] { stream.copy_short_to_device(), stream.copy_short_to_device(); },
           [&] { stream.wait(), stream.wait(); },
           [&] { stream.wait(), stream.copy_short_to_device(); });
}

void work_ahead_of_copies_back() {
  auto& stream = lasting<SharedStream>();
  together([&] { stream.copy_to_host_and_back(); },
           [&] { stream.wait(), stream.copy_short_to_device(); },
           [&] { stream.wait(), stream.call_host_function(); });
}

constexpr model::Check checks_of_base[] = {
    {"spin_lock", spin_lock},
    {"batch_cache", batch_cache},
    {"batch_cache_at_thread_end", batch_cache_at_thread_end},
    {"batch_cache_exchange", batch_cache_exchange},
    {"work_ahead_of_short_copies", work_ahead_of_short_copies},
    {"work_ahead_of_copies_back", work_ahead_of_copies_back},
};

}  // namespace

int main(int argc, char** argv) {
  return model::explore(argc, argv, checks_of_base, std::size(checks_of_base));
}
