// SPDX-License-Identifier: Apache-2.0
/// The blocks of the pinned pool: all blocks by address, the cached ones by size, and their
/// statistics.
#pragma once

#include "base/announce.hpp"
#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/spin_lock.hpp"
#include "memory/releaser.hpp"
#include "slot/point.hpp"

#include <runnel/pinned_pool.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

// A page of most machines, because memory is pinned by pages.
inline constexpr size_t smallest_block = size_t{4} << 10;
inline constexpr size_t largest_block = size_t{1} << 30;
// The sizes of blocks are powers of two up to here, and from here on four in each doubling.
inline constexpr size_t doubled_up_to = size_t{1} << 20;

/// The size of the block for a request of `bytes` bytes. Requires: it fits an address.
constexpr size_t block_size_for(size_t bytes) noexcept {
  if (bytes <= doubled_up_to) return std::bit_ceil(std::max(bytes, smallest_block));
  const size_t step = bytes > largest_block ? smallest_block : std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}
/// Numbers these sizes from 0. Requires: `size` is one of them, at most `largest_block`.
constexpr size_t number_of_size(size_t size) noexcept {
  const auto number = [](int power) {
    return static_cast<size_t>(power - std::countr_zero(smallest_block));
  };
  if (size <= doubled_up_to) return number(std::countr_zero(size));
  const int power = static_cast<int>(std::bit_width(size - 1)) - 1;
  const int doublings = power - std::countr_zero(doubled_up_to);
  return number(std::countr_zero(doubled_up_to)) + 4 * static_cast<size_t>(doublings) +
         (size >> (power - 2)) - 4;
}

[[nodiscard]] inline uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<uintptr_t>(pointer);
}

struct PinnedShelf;
/// A block of pinned memory, and the streams whose work on it must be complete before it is reused.
struct PinnedBlock : Deferred {
  uintptr_t begin;
  size_t bytes;
  PinnedShelf* shelf;
  bool is_in_use = true;  // Else it is in a list of its shelf, or a thread is moving it.
  std::vector<Point> users{};
};

/// The cached blocks of one size and kind. Requires: only PinnedShelves accesses its members.
struct PinnedShelf {
  Deferred* idle = nullptr;
  DeferredQueue pending;
};

/// The blocks of the pool that are not in use.
struct PinnedRemainder {
  size_t cached_blocks;
  size_t releasing;  // The bytes that are being returned to the runtime.
  size_t releases;   // The number of blocks that were returned so far.
};

/// Each member locks the pool itself, unless documented otherwise.
class PinnedShelves {
 public:
  /// The shelf for blocks of this size, and those of larger ones up to the next power of two, whose
  /// blocks serve as well. Requires: block_size_for() has returned the size.
  [[nodiscard]] std::span<PinnedShelf> shelves_for(size_t size, bool write_combined) noexcept {
    if (size > largest_block) return {&uncached_, 1};
    const size_t own = number_of_size(size), last = number_of_size(std::bit_ceil(size));
    return std::span{shelves_[write_combined]}.subspan(own, last - own + 1);
  }

  /// Allocates an idle block; returns null if there is none.
  [[nodiscard]] void* take_idle(PinnedShelf& shelf) noexcept {
    const std::lock_guard lock{lock_};
    auto* const block = static_cast<PinnedBlock*>(shelf.idle);
    // Beyond the limit, cached blocks are not reused: the next allocation releases them first.
    if (block == nullptr || &shelf == &uncached_ || total_bytes_ > limit_) return nullptr;
    shelf.idle = block->next;
    sync::happens_after(block);
    ++statistics_.hits;
    uncache(*block);
    mark_in_use(*block);
    return reinterpret_cast<void*>(block->begin);
  }
  /// Allocates a pending block whose streams have completed their work on it; returns null if there
  /// is none. Looks at most at the oldest `at_most` blocks.
  [[nodiscard]] void* take_complete(PinnedShelf& shelf, size_t at_most) noexcept;
  /// Reserves bytes, and memory for an entry, for a new block. After the runtime has allocated the
  /// block, nothing can fail then, so that it need not be freed, which would wait for the device.
  /// Returns false if the limit does not permit so many bytes. @throws std::bad_alloc
  [[nodiscard]] bool try_reserve(size_t bytes);
  void cancel_reservation(size_t bytes) noexcept;
  /// Adds a new block, which is in use. Requires: it was reserved.
  void add(PinnedBlock& block) noexcept;

  /// Records a use of the block in use that contains the address, if there is one. Returns whether
  /// all of the bytes are in it.
  /// @throws std::bad_alloc
  [[nodiscard]] bool note_use(const void* pointer, size_t bytes, StreamKey use) {
    const std::lock_guard lock{lock_};
    PinnedBlock* const block = find(address_of(pointer));
    if (block == nullptr || !block->is_in_use) return false;
    add_open_point(block->users, use);  // If the stream has ended, the operation will fail.
    return address_of(pointer) + bytes <= block->begin + block->bytes;
  }

  /// Returns a block to the pool. Returns false, and changes nothing, unless the pointer is the
  /// start of a block in use.
  [[nodiscard]] bool deallocate(void* pointer) noexcept;
  /// The start of the block in use that contains the address, or null.
  [[nodiscard]] void* begin_of(const void* pointer) noexcept;
  /// The size of the block in use that begins at this address; 0 if there is none.
  size_t size_of(const void* pointer) noexcept;
  /// Releases all cached blocks that no stream uses; a thread of the library returns them to the
  /// runtime.
  PinnedRemainder release_idle() noexcept;
  /// The same for those that are too large to be cached.
  void release_uncached() noexcept { release_idle_of(uncached_); }
  /// Called after the memory of a released block was returned to the runtime.
  void count_released(size_t bytes) noexcept;
  /// Whether the limit will permit so many bytes once all releases are complete.
  bool has_room_after_releases(size_t bytes) noexcept;

  [[nodiscard]] PinnedStatistics statistics() noexcept;
  void reset_peak() noexcept {
    const std::lock_guard lock{lock_};
    statistics_.peak = statistics_.in_use;
  }
  size_t limit() noexcept;
  /// Returns true if the blocks exceed the new limit.
  [[nodiscard]] bool set_limit(size_t bytes) noexcept;

 private:
  struct Known {
    uintptr_t begin;
    uintptr_t end;
    PinnedBlock* block;
  };

  ///@{ Requires: the lock is held.
  [[nodiscard]] std::vector<Known>::iterator find_after(uintptr_t address) noexcept {
    return std::upper_bound(known_.begin(), known_.end(), address,
                            [](uintptr_t a, const Known& entry) { return a < entry.begin; });
  }
  /// The block that contains the address, or null.
  [[nodiscard]] PinnedBlock* find(uintptr_t address) noexcept {
    const auto next = find_after(address);
    return next != known_.begin() && address < (next - 1)->end ? (next - 1)->block : nullptr;
  }
  /// The block in use that begins at the address, or null.
  [[nodiscard]] PinnedBlock* find_start(const void* pointer) noexcept {
    PinnedBlock* const block = find(address_of(pointer));
    const bool is_start =
        block != nullptr && block->begin == address_of(pointer) && block->is_in_use;
    return is_start ? block : nullptr;
  }
  /// Marks a block as in use.
  void mark_in_use(PinnedBlock& block) noexcept {
    block.is_in_use = true;
    ++statistics_.blocks;
    statistics_.in_use += block.bytes;
    statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
    count_up(counters.pinned_blocks);
  }
  void uncache(const PinnedBlock& block) noexcept {
    --statistics_.cached_blocks;
    statistics_.cached -= block.bytes;
  }
  void put_idle(PinnedBlock& block) noexcept;
  ///@}

  /// Takes out the oldest of `left` pending blocks of which this search has found no stream
  /// pending. Moves those that it looks at to the end of the queue, so that a blocked stream does
  /// not hide others. Null if there is none.
  [[nodiscard]] PinnedBlock* pop_pending(PinnedShelf& shelf, uint64_t search,
                                         size_t& left) noexcept;
  /// Polls the streams of the oldest `at_most` pending blocks, each of them until it is found
  /// pending. Blocks that are complete become idle. Returns whether it has stopped at the first.
  bool collect(PinnedShelf& shelf, size_t at_most, bool stops_at_first) noexcept;
  /// Returns the idle blocks to the runtime.
  void free_idle(PinnedShelf& shelf) noexcept;
  void release_idle_of(PinnedShelf& shelf) noexcept;

  SpinLock lock_;
  std::array<std::array<PinnedShelf, number_of_size(largest_block) + 1>, 2> shelves_;
  PinnedShelf uncached_;  // Blocks that are too large to be cached go back to the runtime.
  PinnedStatistics statistics_{};
  // The bytes of all blocks and reservations, including blocks that are being returned to the
  // runtime.
  size_t total_bytes_ = 0;
  size_t releases_ = 0;
  size_t limit_ = std::numeric_limits<size_t>::max();
  std::vector<Known> known_;  // Sorted by address.
  size_t reserved_entries_ = 0;
};

inline PinnedShelves& pinned_shelves() { return never_destroyed<PinnedShelves>(); }

}  // namespace runnel::inline RUNNEL_ABI::detail
