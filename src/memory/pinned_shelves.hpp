// SPDX-License-Identifier: Apache-2.0
/// Bookkeeping of the pinned pool: which blocks there are, on which shelf the cached ones lie, and
/// how many bytes that makes.
#pragma once

#include "base/announce.hpp"
#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/spin_lock.hpp"
#include "memory/pinned_block.hpp"

#include <runnel/pinned_pool.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

// one page, since memory is pinned by pages
inline constexpr std::size_t smallest_block = std::size_t{4} << 10;
inline constexpr std::size_t largest_block = std::size_t{1} << 30;

[[nodiscard]] inline std::uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// First in, first out.
class BlockQueue {
 public:
  void push(PinnedBlock* block) noexcept {
    block->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = block;
    last_ = block;
    ++size_;
  }
  [[nodiscard]] PinnedBlock* pop() noexcept {
    PinnedBlock* const block = first_;
    if (block == nullptr) return nullptr;
    first_ = block->next;
    --size_;
    return block;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  PinnedBlock* first_ = nullptr;
  PinnedBlock* last_ = nullptr;
  std::size_t size_ = 0;
};

/// The cached blocks of one size and kind. Requires: its members are touched by PinnedShelves only.
struct PinnedShelf {
  PinnedBlock* idle = nullptr;
  BlockQueue pending;
  bool keeps = true;  // false: its blocks are too large to be kept, and go back to the runtime
};

/// What the pool holds besides the blocks in use.
struct PinnedRest {
  std::size_t cached_blocks;
  std::size_t releasing;  // bytes that were given up, and that the runtime does not have yet
  std::size_t releases;   // how often it got some
};

/// Every member takes the lock itself, unless it says otherwise.
class PinnedShelves {
 public:
  PinnedShelves() noexcept { direct_.keeps = false; }

  /// The shelf for blocks of that size. Requires: `bytes` is a power of two from `smallest_block`
  /// to `largest_block`, or larger than that.
  [[nodiscard]] PinnedShelf& shelf_for(std::size_t bytes, bool write_combined) noexcept {
    if (bytes > largest_block) return direct_;
    return shelves_[write_combined][static_cast<std::size_t>(std::countr_zero(bytes) -
                                                             std::countr_zero(smallest_block))];
  }

  /// Hands out an idle block; null if there is none.
  [[nodiscard]] void* take_idle(PinnedShelf& shelf) noexcept {
    const std::lock_guard lock{lock_};
    PinnedBlock* const block = shelf.idle;
    if (block == nullptr || exceeds_limit()) return nullptr;
    shelf.idle = block->next;
    own_cached(*block);
    return reinterpret_cast<void*>(block->begin);
  }
  /// Hands out a block that was given back while streams still worked on it, and whose streams are
  /// complete now; null if there is none. Asks for no more than the oldest `at_most` blocks.
  [[nodiscard]] void* take_complete(PinnedShelf& shelf, std::size_t at_most) noexcept;
  /// Reserves bytes, and the memory of an entry, for a new block: once the runtime has made the
  /// block, nothing can fail, so that it need not be given back, which would wait for the device.
  /// False if the limit leaves fewer bytes. @throws std::bad_alloc
  [[nodiscard]] bool try_reserve(std::size_t bytes);
  void cancel_reservation(std::size_t bytes) noexcept;
  /// Enters a new block, which is handed out at once. Requires: it was reserved.
  void add(PinnedBlock& block) noexcept;

  /// Counts a use of the block that contains the address, if that block is in use. True if all of
  /// the bytes lie in the block.
  /// @throws std::bad_alloc
  [[nodiscard]] bool note_use(const void* pointer, std::size_t bytes, StreamUse use) {
    const std::lock_guard lock{lock_};
    PinnedBlock* const block = find(address_of(pointer));
    if (block == nullptr) return false;
    if (block->state == PinnedBlock::State::in_use) block->add_use(use);
    return address_of(pointer) + bytes <= block->begin + block->bytes;
  }
  /// Counts a use; false if the address lies in no block in use. @throws std::bad_alloc
  [[nodiscard]] bool try_add_use(const void* pointer, StreamUse use);

  /// Takes a block back. False, and nothing changed, unless the pointer is the start of a block in
  /// use. `record`: records the events of the block's uses now; otherwise the next thread that
  /// looks for a complete block does it.
  [[nodiscard]] bool give_back(void* pointer, bool record) noexcept;
  /// The size of the block that begins there and is in use; 0 if there is none.
  [[nodiscard]] std::size_t size_of(const void* pointer) noexcept;
  /// Gives up all cached blocks that no stream works on: the library's thread gives them back to
  /// the runtime.
  PinnedRest release_idle() noexcept;
  /// The runtime has the memory of a block that was given up.
  void note_released(std::size_t bytes) noexcept;
  /// Whether the limit leaves so many bytes once the runtime has all that was given up.
  [[nodiscard]] bool has_room_later(std::size_t bytes) noexcept;

  [[nodiscard]] PinnedStatistics statistics() noexcept;
  void reset_peak() noexcept {
    const std::lock_guard lock{lock_};
    statistics_.peak = statistics_.in_use;
  }
  [[nodiscard]] std::size_t limit() noexcept;
  /// True if the blocks exceed the new limit.
  [[nodiscard]] bool set_limit(std::size_t bytes) noexcept;

 private:
  struct Known {
    std::uintptr_t begin;
    std::uintptr_t end;
    PinnedBlock* block;
  };
  enum class Then { idle, taken };

  ///@{ Requires: the lock is held.
  [[nodiscard]] std::vector<Known>::iterator find_after(std::uintptr_t address) noexcept {
    return std::upper_bound(known_.begin(), known_.end(), address,
                            [](std::uintptr_t a, const Known& entry) { return a < entry.begin; });
  }
  /// The block that contains the address, or null.
  [[nodiscard]] PinnedBlock* find(std::uintptr_t address) noexcept {
    const auto next = find_after(address);
    return next != known_.begin() && address < (next - 1)->end ? (next - 1)->block : nullptr;
  }
  /// The block becomes a user's.
  void own(PinnedBlock& block) noexcept {
    block.state = PinnedBlock::State::in_use;
    ++statistics_.blocks;
    statistics_.in_use += block.bytes;
    statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
    count_up(counters.pinned_blocks);
  }
  /// The same with a cached block, which is in no list any more.
  void own_cached(PinnedBlock& block) noexcept {
    sync::happens_after(&block);
    ++statistics_.hits;
    uncache(block);
    own(block);
  }
  /// Then no cached block is handed out: the next allocation gives them back first.
  [[nodiscard]] bool exceeds_limit() const noexcept { return held_ > limit_; }
  void disown(PinnedBlock& block) noexcept;
  void cache(const PinnedBlock& block) noexcept;
  void uncache(const PinnedBlock& block) noexcept {
    --statistics_.cached_blocks;
    statistics_.cached -= block.bytes;
  }
  void put_idle(PinnedBlock& block) noexcept;
  void put_pending(PinnedBlock& block) noexcept;
  /// The pool gives the block up. Its bytes still count.
  void forget(const PinnedBlock& block) noexcept;
  ///@}

  /// Asks how far the streams of pending blocks are, the oldest `at_most` blocks first. A block
  /// that still waits goes to the end of the queue, so that one stream that is held up does not
  /// hide the others. Blocks that are complete become idle, or (`taken`) the first one is handed
  /// out and returned.
  PinnedBlock* collect(PinnedShelf& shelf, std::size_t at_most, Then then) noexcept;
  [[nodiscard]] std::size_t count_pending(PinnedShelf& shelf) noexcept;
  [[nodiscard]] PinnedBlock* pop_pending(PinnedShelf& shelf) noexcept;
  /// Puts a block that collect() has looked at where it belongs. True if it was handed out.
  [[nodiscard]] bool settle(PinnedBlock& block, Progress progress, Then then) noexcept;
  void release_idle_of(PinnedShelf& shelf) noexcept;

  SpinLock lock_;
  std::array<std::array<PinnedShelf,
                        std::countr_zero(largest_block) - std::countr_zero(smallest_block) + 1>,
             2>
      shelves_;
  PinnedShelf direct_;
  PinnedStatistics statistics_{};
  // bytes of all blocks and reservations, and of blocks that the runtime does not have back yet
  std::size_t held_ = 0;
  std::size_t releases_ = 0;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  std::vector<Known> known_;  // by address
  std::size_t reserved_entries_ = 0;
};

inline PinnedShelves& pinned_shelves() { return never_destroyed<PinnedShelves>(); }

}  // namespace runnel::inline RUNNEL_ABI::detail
