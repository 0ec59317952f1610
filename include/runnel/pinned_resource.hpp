// SPDX-License-Identifier: Apache-2.0
/// The pinned pool for containers.
#pragma once

#include <runnel/memory.hpp>
#include <runnel/pinned_pool.hpp>

#include <cstddef>
#include <memory_resource>

namespace runnel::inline RUNNEL_ABI {

/// The one resource over the pinned pool; it lives as long as the process. Blocks are aligned to 256 bytes, more is refused
/// (`errc::invalid_argument`), as is giving back what is not a block in use: a foreign pointer, or one given back already.
[[nodiscard]] std::pmr::memory_resource* pinned_resource() noexcept;

/// The pinned pool as a standard allocator: `std::vector<float, PinnedAllocator<float>>`.
template <class T>
struct PinnedAllocator {
  using value_type = T;  ///< as of every allocator

  PinnedAllocator() noexcept = default;
  /// All of them share the one pool.
  template <class U>
  PinnedAllocator(const PinnedAllocator<U>&) noexcept {}

  /// @throws errc::out_of_memory
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(pinned_resource()->allocate(detail::bytes_for(count, sizeof(T)), alignof(T)));
  }
  /// Streams may still be using the memory, as when a PinnedBuffer is dropped.
  void deallocate(T* pointer, std::size_t count) { pinned_resource()->deallocate(pointer, count * sizeof(T), alignof(T)); }

  template <class U>
  friend bool operator==(const PinnedAllocator&, const PinnedAllocator<U>&) noexcept {
    return true;
  }
};

}  // namespace runnel::inline RUNNEL_ABI
