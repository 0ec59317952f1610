// SPDX-License-Identifier: Apache-2.0
/// What happens later, on a thread of the library: objects are given back or destroyed there.
#pragma once

#include "base/process.hpp"
#include "base/push_front.hpp"
#include "base/sync.hpp"

#include <runnel/completion.hpp>

#include <atomic>
#include <cstddef>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// A first-in, first-out queue of objects with a member `next`.
template <class T>
class Fifo {
 public:
  void push(T& object) noexcept {
    object.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &object;
    last_ = &object;
    ++size_;
  }
  /// Null if it is empty.
  [[nodiscard]] T* pop() noexcept {
    T* const object = first_;
    if (object == nullptr) return nullptr;
    first_ = object->next;
    object->next = nullptr;
    --size_;
    return object;
  }
  size_t size() const noexcept { return size_; }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  size_t size_ = 0;
};
using DeferredQueue = Fifo<Deferred>;

/// Objects that any threads add, and one thread at a time takes, all at once and without a lock.
/// `Link` is the member that links them.
template <auto Link>
class Arrivals;
template <class T, class Base, T* Base::* Link>
class Arrivals<Link> {
 public:
  void add(T& object) noexcept { push_front(newest_, object, object.*Link); }
  bool is_empty() const noexcept { return newest_.load(std::memory_order_relaxed) == nullptr; }
  /// The oldest one, to which the later ones are linked; null if there is none.
  [[nodiscard]] T* take() noexcept {
    T* oldest = nullptr;
    T* each = is_empty() ? nullptr : newest_.exchange(nullptr, std::memory_order_acquire);
    while (each != nullptr) {
      T* const older = std::exchange(each->*Link, oldest);
      oldest = std::exchange(each, older);
    }
    return oldest;
  }

 private:
  sync::Atomic<T*> newest_{nullptr};
};

/// Calls `object.run` on the service thread (slot/reclaimer.hpp).
void run_later(Deferred& object) noexcept;
/// Calls `object.run` now, or later if this is a host function. Returns false, and does nothing, if
/// the runtime must not be called any more.
inline bool run_or_defer(Deferred& object) noexcept {
  const Release mode = release_mode();
  if (mode == Release::now)
    object.run(object);
  else if (mode == Release::later)
    run_later(object);
  return mode != Release::never;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
