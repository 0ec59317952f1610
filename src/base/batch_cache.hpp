// SPDX-License-Identifier: Apache-2.0
/// A cache of objects that one thread takes and another gives back, again and again. With a common
/// list, or the general allocator, the two threads would contend each time. Here they exchange
/// whole batches.
#pragma once

#include "base/prefetch.hpp"
#include "base/sync.hpp"
#include "base/thread_end.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// What a node of a cache derives from. Only the cache uses the members: the first node of a batch
/// knows the others, so that several can be prefetched, which a list would not allow. They have no
/// values at first, because to write them would need more cache lines.
template <class Node, std::size_t size>
struct Batched {
  Node* next_batch;
  std::size_t count;  // of the others
  std::array<Node*, size - 1> others;
};

/// One cache for all threads. Requires: Node derives from Batched.
///
/// A thread that finds no batch in a place of its own takes all of the stack: so it cannot take a
/// batch that has come back while it read the top. Threads that begin meanwhile find a batch in a
/// place. Without places they would find none, and the cache would grow with each of them.
template <class Node, std::size_t places = 64>
class BatchCache {
 public:
  /// Null if the cache has none for the calling thread.
  [[nodiscard]] static Node* take() noexcept {
    if (own_.taken == nullptr) {
      if (own_.phase != Phase::used && !begin()) return take_one();
      if (!take_batch()) return nullptr;
    }
    if (own_.left == 0) return std::exchange(own_.taken, nullptr);
    const auto& others = own_.taken->others;
    Node* const node = others[--own_.left];
    if (own_.left >= ahead) prefetch_to_write(others[own_.left - ahead]);
    return node;
  }
  static void give(Node* node) noexcept {
    if (own_.phase != Phase::used && !begin()) [[unlikely]] {
      node->count = 0;
      return share(node);
    }
    if (own_.given == nullptr) {
      own_.given = node;
      node->count = 0;
      return;
    }
    Node& batch = *own_.given;
    batch.others[batch.count] = node;
    if (++batch.count == batch.others.size()) share(std::exchange(own_.given, nullptr));
  }
  /// Gives a batch to all threads: the node and those that it knows.
  static void share(Node* batch) noexcept {
    batch->next_batch = nullptr;
    for (sync::Atomic<Node*>& place : places_) {
      Node* none = place.load(std::memory_order_relaxed);
      if (none == nullptr && place.compare_exchange_strong(none, batch, std::memory_order_release,
                                                           std::memory_order_relaxed))
        return;
    }
    batch->next_batch = stack_.load(std::memory_order_relaxed);
    while (!stack_.compare_exchange_weak(batch->next_batch, batch, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
  }

 private:
  /// So many nodes are prefetched. With one, its line has not come yet when it is taken.
  static constexpr std::size_t ahead = 4;

  enum class Phase : unsigned char { unused, used, ended };

  /// The calling thread's nodes: a batch that it takes from, and one that it gives back to. There
  /// is no destructor, so that the members may be read until the thread has ended.
  struct Own {
    Node* taken = nullptr;
    // of the others in `taken`: in its `count` this would write to a line that another thread had
    std::size_t left = 0;
    Node* batches = nullptr;  // more of them to take from
    Node* given = nullptr;
    Phase phase = Phase::unused;
  };

  /// Prepares the calling thread. False once the thread is ending: it must keep no node then, which
  /// would be lost.
  [[nodiscard]] static bool begin() noexcept {
    if (own_.phase == Phase::ended) return false;
    own_.phase = Phase::used;
    at_thread_end(end, nullptr);
    return true;
  }
  /// Gets a batch to take from. False if there is none.
  [[nodiscard]] static bool take_batch() noexcept {
    if (own_.batches == nullptr) own_.taken = take_place();
    if (own_.taken == nullptr) {
      if (own_.batches == nullptr)
        own_.batches = stack_.exchange(nullptr, std::memory_order_acquire);
      if (own_.batches == nullptr) return false;
      own_.taken = std::exchange(own_.batches, own_.batches->next_batch);
    }
    own_.left = own_.taken->count;
    for (std::size_t i = 1; i <= ahead && i <= own_.left; ++i)
      prefetch_to_write(own_.taken->others[own_.left - i]);
    return true;
  }
  /// Takes the batch of a place. Null if they are all empty.
  [[nodiscard]] static Node* take_place() noexcept {
    for (sync::Atomic<Node*>& place : places_)
      if (place.load(std::memory_order_relaxed) != nullptr)
        if (Node* const batch = place.exchange(nullptr, std::memory_order_acquire)) return batch;
    return nullptr;
  }
  /// For a thread that must keep no node: takes a batch, or all of the stack, and gives all but one
  /// node back at once.
  [[nodiscard]] static Node* take_one() noexcept {
    if (Node* batch = take_place()) {
      Node* const node = take_from(batch);
      if (batch != nullptr) share(batch);
      return node;
    }
    Node* rest = stack_.exchange(nullptr, std::memory_order_acquire);
    if (rest == nullptr) return nullptr;
    Node* const node = take_from(rest);
    Node* none = nullptr;
    if (!stack_.compare_exchange_strong(none, rest, std::memory_order_release,
                                        std::memory_order_relaxed))
      while (rest != nullptr) share(std::exchange(rest, rest->next_batch));
    return node;
  }
  /// Takes a node out of the first batch of a list.
  [[nodiscard]] static Node* take_from(Node*& batches) noexcept {
    if (batches->count != 0) return batches->others[--batches->count];
    return std::exchange(batches, batches->next_batch);
  }
  static void end(void*) noexcept {
    own_.phase = Phase::ended;
    if (own_.taken != nullptr) {
      own_.taken->count = own_.left;
      share(std::exchange(own_.taken, nullptr));
    }
    while (own_.batches != nullptr) share(std::exchange(own_.batches, own_.batches->next_batch));
    if (own_.given != nullptr) share(std::exchange(own_.given, nullptr));
  }

  static constinit inline std::array<sync::Atomic<Node*>, places> places_{};  // a batch each
  // of the other batches
  static constinit inline sync::Atomic<Node*> stack_{nullptr};
  static constinit inline thread_local Own own_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
