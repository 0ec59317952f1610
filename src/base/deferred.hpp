// SPDX-License-Identifier: Apache-2.0
/// What happens later, on a thread of the library: objects are given back or destroyed there.
#pragma once

#include "base/process.hpp"

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// Embedded in what is deferred, so that deferring allocates nothing.
struct Deferred {
  void (*run)(Deferred&) noexcept = nullptr;  // May destroy the object.
  Deferred* next = nullptr;                   // in the list of the thread
  // It may call functions of the program, which may take long. Only the service thread runs it.
  // Everything else is run first, also by a thread that needs memory.
  bool calls_program = false;
};
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
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};
using DeferredQueue = Fifo<Deferred>;

/// Calls `object.run` on the service thread (stream/reclaimer.hpp).
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

}}}  // namespace runnel::RUNNEL_ABI::detail
