// SPDX-License-Identifier: Apache-2.0
/// A cache of objects that one thread allocates and another thread frees, over and over. With one
/// shared list, or the general allocator, the two threads would contend each time. Here they
/// exchange whole batches.
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

/// The base class of cached nodes. Only the cache uses the members. The first node of a batch
/// stores pointers to the others, so that several can be prefetched; a linked list would not allow
/// that. The members are not initialized, because that would touch more cache lines.
template <class Node, size_t size>
struct Batched {
  Node* next_batch;
  size_t count;  // the number of valid pointers in `others`
  std::array<Node*, size - 1> others;
};

/// One cache for all threads. Requires: Node derives from Batched.
///
/// A full batch is put into an empty slot, or on the stack if no slot is empty. A thread that finds
/// all slots empty takes the whole stack with one exchange: popping only the top would have an ABA
/// problem. Threads that start meanwhile find batches in the slots; without slots they would find
/// none, and the cache would grow with each new thread.
template <class Node, size_t slot_count = 64>
class BatchCache {
 public:
  /// Null if the cache has no node for the calling thread.
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
  /// Gives a batch, the node and its `others`, to all threads.
  static void share(Node* batch) noexcept {
    batch->next_batch = nullptr;
    for (sync::Atomic<Node*>& slot : slots_) {
      Node* none = slot.load(std::memory_order_relaxed);
      if (none == nullptr && slot.compare_exchange_strong(none, batch, std::memory_order_release,
                                                          std::memory_order_relaxed))
        return;
    }
    batch->next_batch = stack_.load(std::memory_order_relaxed);
    while (!stack_.compare_exchange_weak(batch->next_batch, batch, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
  }

 private:
  /// The prefetch distance in nodes. With a distance of one the cache line would arrive too late.
  static constexpr size_t ahead = 4;

  enum class Phase : unsigned char { unused, used, ended };

  /// The calling thread's part: a batch to take from, and one that collects freed nodes. It has no
  /// destructor, so that the members can be read until the thread has ended.
  struct ThreadPart {
    Node* taken = nullptr;
    // How many of the others in `taken` are left. Counting them in `taken->count` would write to a
    // cache line that another thread wrote last.
    size_t left = 0;
    Node* batches = nullptr;  // more batches to take from
    Node* given = nullptr;
    Phase phase = Phase::unused;
  };

  /// Prepares the calling thread. False once the thread is ending: a node that it kept then would
  /// leak.
  [[nodiscard]] static bool begin() noexcept {
    if (own_.phase == Phase::ended) return false;
    own_.phase = Phase::used;
    at_thread_end(end, nullptr);
    return true;
  }
  /// Acquires a batch to take from. False if there is none.
  [[nodiscard]] static bool take_batch() noexcept {
    if (own_.batches == nullptr) own_.taken = take_slot();
    if (own_.taken == nullptr) {
      if (own_.batches == nullptr)
        own_.batches = stack_.exchange(nullptr, std::memory_order_acquire);
      if (own_.batches == nullptr) return false;
      own_.taken = std::exchange(own_.batches, own_.batches->next_batch);
    }
    own_.left = own_.taken->count;
    for (size_t i = 1; i <= ahead && i <= own_.left; ++i)
      prefetch_to_write(own_.taken->others[own_.left - i]);
    return true;
  }
  /// Takes the batch of a slot. Null if all slots are empty.
  [[nodiscard]] static Node* take_slot() noexcept {
    for (sync::Atomic<Node*>& slot : slots_)
      if (slot.load(std::memory_order_relaxed) != nullptr)
        if (Node* const batch = slot.exchange(nullptr, std::memory_order_acquire)) return batch;
    return nullptr;
  }
  /// For a thread that must keep no node. Takes a batch, or the whole stack, and returns all but
  /// one node at once.
  [[nodiscard]] static Node* take_one() noexcept {
    if (Node* batch = take_slot()) {
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
  /// Removes a node from the first batch of a list.
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

  static constinit inline std::array<sync::Atomic<Node*>, slot_count> slots_{};  // one batch each
  // The batches that found no empty slot.
  static constinit inline sync::Atomic<Node*> stack_{nullptr};
  static constinit inline thread_local ThreadPart own_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
