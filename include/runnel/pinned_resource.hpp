// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Pinned memory for containers: a `std::pmr` resource and a standard allocator over the pinned
/// pool.
#pragma once

#include <runnel/memory.hpp>

#include <memory_resource>

namespace runnel::inline RUNNEL_ABI {

/// The process's resource over the pinned pool; it lives as long as the process. Blocks are aligned
/// to 256 bytes, or to more if the caller asks for more. `deallocate` throws
/// `errc::invalid_argument` for a pointer that is not a block in use: one that was not allocated
/// here, or one that was deallocated already.
[[nodiscard]] std::pmr::memory_resource* pinned_resource() noexcept;

/// The pinned pool as a standard allocator: `std::vector<float, PinnedAllocator<float>>`.
template <class T>
struct PinnedAllocator {
  using value_type = T;  ///< the type of the elements

  PinnedAllocator() noexcept = default;
  /// All allocators share the one pool.
  template <class U>
  PinnedAllocator(const PinnedAllocator<U>&) noexcept {}

  /// Memory for `count` elements. @throws errc::out_of_memory
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(
        pinned_resource()->allocate(detail::bytes_for(count, sizeof(T)), alignof(T)));
  }
  /// Returns the memory to the pool, without waiting. Streams may still be using it: the pool
  /// reuses the memory after their work.
  void deallocate(T* pointer, std::size_t count) {
    pinned_resource()->deallocate(pointer, count * sizeof(T), alignof(T));
  }

  template <class U>
  friend bool operator==(const PinnedAllocator&, const PinnedAllocator<U>&) noexcept {
    return true;
  }
};

}  // namespace runnel::inline RUNNEL_ABI
