// SPDX-License-Identifier: Apache-2.0
/// A cache of objects that one thread takes and another gives back, again and again. With a common list, or the general allocator, the two
/// threads would contend each time. Here they exchange whole batches.
#pragma once

#include "base/sync.hpp"
#include "base/thread_end.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// One cache for all threads. A node has `Node* next` and, used in the first node of a batch, `Node* next_batch`. Both belong to the cache
/// while the node is in it.
template <class Node>
class BatchCache {
 public:
  /// Null if the cache has none for the calling thread.
  [[nodiscard]] static Node* take() noexcept {
    if (own_.nodes == nullptr) {
      if (own_.phase != Phase::used && !begin()) return take_one();
      // All batches are taken at once, so that no batch can come back between reading the top of the stack and taking it.
      if (own_.batches == nullptr) own_.batches = common_.exchange(nullptr, std::memory_order_acquire);
      if (own_.batches == nullptr) return nullptr;
      own_.nodes = std::exchange(own_.batches, own_.batches->next_batch);
    }
    Node* const taken = std::exchange(own_.nodes, own_.nodes->next);
    __builtin_prefetch(own_.nodes, 1);  // the next one to be taken; another thread had it last
    return taken;
  }
  static void give(Node* node) noexcept {
    if (own_.phase != Phase::used && !begin()) [[unlikely]] {
      node->next = nullptr;
      return share(node);
    }
    node->next = own_.given;
    own_.given = node;
    if (++own_.given_count < batch) return;
    share(std::exchange(own_.given, nullptr));
    own_.given_count = 0;
  }
  /// Gives a batch to all threads: nodes that are chained by `next`.
  static void share(Node* nodes) noexcept {
    nodes->next_batch = common_.load(std::memory_order_relaxed);
    while (!common_.compare_exchange_weak(nodes->next_batch, nodes, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

 private:
  static constexpr int batch = 32;

  enum class Phase : unsigned char { unused, used, ended };

  /// The calling thread's nodes: those it takes from, and those given back to it, at most a batch. There is no destructor, so that the
  /// members may be read until the thread has ended.
  struct Own {
    Node* nodes = nullptr;
    Node* batches = nullptr;  // more of them
    Node* given = nullptr;
    int given_count = 0;
    Phase phase = Phase::unused;
  };

  /// Prepares the calling thread. False once the thread is ending: it must keep no node then, which would be lost.
  [[nodiscard]] static bool begin() noexcept {
    if (own_.phase == Phase::ended) return false;
    own_.phase = Phase::used;
    at_thread_end(end, nullptr);
    return true;
  }
  /// For a thread that must keep no node: takes all batches, and gives all but one node back at once.
  [[nodiscard]] static Node* take_one() noexcept {
    Node* const taken = common_.exchange(nullptr, std::memory_order_acquire);
    if (taken == nullptr) return nullptr;
    Node* rest = taken->next_batch;
    if (taken->next != nullptr) {
      taken->next->next_batch = rest;
      rest = taken->next;
    }
    Node* none = nullptr;
    if (!common_.compare_exchange_strong(none, rest, std::memory_order_release, std::memory_order_relaxed))
      while (rest != nullptr) share(std::exchange(rest, rest->next_batch));
    return taken;
  }
  static void end(void*) noexcept {
    own_.phase = Phase::ended;
    if (own_.nodes != nullptr) share(std::exchange(own_.nodes, nullptr));
    while (own_.batches != nullptr) share(std::exchange(own_.batches, own_.batches->next_batch));
    if (own_.given != nullptr) share(std::exchange(own_.given, nullptr));
    own_.given_count = 0;
  }

  static constinit inline sync::Atomic<Node*> common_{nullptr};
  static constinit inline thread_local Own own_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
