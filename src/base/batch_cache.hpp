// SPDX-License-Identifier: Apache-2.0
/// A cache of objects that one thread takes and another gives back, again and again. With a common list, or the general allocator, the two
/// threads would contend each time. Here they exchange whole batches.
#pragma once

#include "base/sync.hpp"
#include "base/thread_end.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// One cache for all threads. A node has `Node* next` and, used in the first node of a batch, `Node* next_batch`. Both belong to the cache
/// while the node is in it.
///
/// A thread that finds no batch in a place of its own takes all of the stack: so it cannot take a batch that has come back while it read
/// the top. Threads that begin meanwhile find a batch in a place. Without places they would find none, and the cache would grow with each
/// of them.
template <class Node, std::size_t places = 64>
class BatchCache {
 public:
  /// Null if the cache has none for the calling thread.
  [[nodiscard]] static Node* take() noexcept {
    if (own_.nodes == nullptr) {
      if (own_.phase != Phase::used && !begin()) return take_one();
      if (own_.batches == nullptr) own_.nodes = take_place();
      if (own_.nodes == nullptr) {
        if (own_.batches == nullptr) own_.batches = stack_.exchange(nullptr, std::memory_order_acquire);
        if (own_.batches == nullptr) return nullptr;
        own_.nodes = std::exchange(own_.batches, own_.batches->next_batch);
      }
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
    for (sync::Atomic<Node*>& place : places_) {
      Node* none = place.load(std::memory_order_relaxed);
      if (none == nullptr && place.compare_exchange_strong(none, nodes, std::memory_order_release, std::memory_order_relaxed)) return;
    }
    nodes->next_batch = stack_.load(std::memory_order_relaxed);
    while (!stack_.compare_exchange_weak(nodes->next_batch, nodes, std::memory_order_release, std::memory_order_relaxed)) {
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
  /// Takes the batch of a place. Null if they are all empty.
  [[nodiscard]] static Node* take_place() noexcept {
    for (sync::Atomic<Node*>& place : places_)
      if (place.load(std::memory_order_relaxed) != nullptr)
        if (Node* const nodes = place.exchange(nullptr, std::memory_order_acquire)) return nodes;
    return nullptr;
  }
  /// For a thread that must keep no node: takes a batch, or all of the stack, and gives all but one node back at once.
  [[nodiscard]] static Node* take_one() noexcept {
    if (Node* const nodes = take_place()) {
      if (nodes->next != nullptr) share(nodes->next);
      return nodes;
    }
    Node* const taken = stack_.exchange(nullptr, std::memory_order_acquire);
    if (taken == nullptr) return nullptr;
    Node* rest = taken->next_batch;
    if (taken->next != nullptr) {
      taken->next->next_batch = rest;
      rest = taken->next;
    }
    Node* none = nullptr;
    if (!stack_.compare_exchange_strong(none, rest, std::memory_order_release, std::memory_order_relaxed))
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

  static constinit inline std::array<sync::Atomic<Node*>, places> places_{};  // a batch each
  static constinit inline sync::Atomic<Node*> stack_{nullptr};                // of the other batches
  static constinit inline thread_local Own own_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
