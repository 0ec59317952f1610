// SPDX-License-Identifier: Apache-2.0
/// A hash table of slots, by native handle. It does not allocate, and adds some nanoseconds to the
/// creation of a stream.
#pragma once

#include "slot/slots.hpp"

#include <runnel/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// Requires, for each member: the lock of the slots is held.
class HandleTable {
 public:
  void insert(Slot& slot) noexcept {
    slot.next_in_bucket = std::exchange(bucket_of(slot.handle), &slot);
  }
  /// Does nothing if the slot is not in the table.
  void erase(Slot& slot) noexcept {
    Slot** link = &bucket_of(slot.handle);
    while (*link != nullptr && *link != &slot) link = &(*link)->next_in_bucket;
    if (*link != nullptr) *link = slot.next_in_bucket;
  }
  /// Calls `f(slot)` for each slot with this handle. `f` may erase that slot.
  template <class F>
  void for_each(native::stream handle, F&& f) {
    for (Slot *slot = bucket_of(handle), *next = nullptr; slot != nullptr; slot = next) {
      next = slot->next_in_bucket;
      if (slot->handle == handle) f(*slot);
    }
  }

 private:
  static constexpr int index_bits = 10;

  [[nodiscard]] Slot*& bucket_of(native::stream handle) noexcept {
    // Fibonacci hashing: addresses have similar low bits.
    constexpr uint64_t golden_ratio = 0x9E3779B97F4A7C15;
    return buckets_[static_cast<size_t>(reinterpret_cast<uintptr_t>(handle) * golden_ratio >>
                                        (64 - index_bits))];
  }

  std::array<Slot*, size_t{1} << index_bits> buckets_{};
};

}  // namespace runnel::inline RUNNEL_ABI::detail
