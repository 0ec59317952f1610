// SPDX-License-Identifier: Apache-2.0
/// Lists that any threads extend.
#pragma once

#include <runnel/config.hpp>

#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

/// Puts the object in front of the list that begins at the atomic pointer `first`. `next` is its
/// link. Requires: no thread removes a single object.
template <class First, class T, class Link>
void push_front(First& first, T& object, Link& next) noexcept {
  next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(next, &object, std::memory_order_release)) {
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
