// SPDX-License-Identifier: Apache-2.0
/// The books of the pinned pool: which blocks there are, on which shelf those lie that nobody owns, and how many bytes that makes.
#pragma once

#include "base/immortal.hpp"
#include "base/spin_lock.hpp"
#include "memory/pinned_block.hpp"

#include <runnel/pinned_pool.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

inline constexpr std::size_t smallest_block = std::size_t{4} << 10;  // a page, which is what gets pinned
inline constexpr std::size_t largest_block = std::size_t{1} << 30;

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

/// The blocks of one size and kind that nobody owns.
struct PinnedShelf {
  PinnedBlock* idle = nullptr;
  BlockQueue pending;
  bool keeps = true;  // false: what is too large to be kept goes back to the runtime
};

struct PinnedShelves {
  PinnedShelves() { direct.keeps = false; }

  ///@{ The lock is held.
  /// The block that contains the address, or null.
  [[nodiscard]] PinnedBlock* find(std::uintptr_t address) noexcept {
    const auto next = after(address);
    return next != known_.begin() && address < (next - 1)->end ? (next - 1)->block : nullptr;
  }
  /// A new block, which its user owns from now on.
  void add(PinnedBlock& block) {
    known_.insert(after(block.begin), {block.begin, block.begin + block.bytes, &block});
    ++statistics.misses;
    own(block);
  }
  /// A cached block, taken from its list, becomes a user's.
  void own_cached(PinnedBlock& block) noexcept {
    ++statistics.hits;
    uncache(block);
    own(block);
  }
  ///@}

  /// Looks whether blocks that were given back have been passed, the oldest `at_most` first; those that have not go to the end, so that one
  /// stream that is held up does not hide the others. One that has, and is kept, is returned, if `take`: in no list. The rest become idle.
  PinnedBlock* collect(PinnedShelf& shelf, std::size_t at_most, bool take) noexcept;
  /// All cached blocks that are not in use by a stream go back to the runtime.
  void release_idle() noexcept;
  /// A block that its user has given back, and no stream uses, goes back to the runtime. The lock is not held.
  void release(PinnedBlock* block) noexcept;

  SpinLock lock;
  std::array<std::array<PinnedShelf, std::countr_zero(largest_block) - std::countr_zero(smallest_block) + 1>, 2> shelves;
  PinnedShelf direct;
  PinnedStatistics statistics{};
  std::size_t held = 0;  // bytes, in use or not
  std::size_t limit = std::numeric_limits<std::size_t>::max();

 private:
  struct Known {
    std::uintptr_t begin;
    std::uintptr_t end;
    PinnedBlock* block;
  };
  [[nodiscard]] std::vector<Known>::iterator after(std::uintptr_t address) noexcept {
    return std::upper_bound(known_.begin(), known_.end(), address, [](std::uintptr_t a, const Known& entry) { return a < entry.begin; });
  }
  void own(PinnedBlock& block) noexcept {
    block.state = PinnedBlock::State::in_use;
    ++statistics.blocks;
    statistics.in_use += block.bytes;
    statistics.peak = std::max(statistics.peak, statistics.in_use);
  }
  void uncache(const PinnedBlock& block) noexcept {
    --statistics.cached_blocks;
    statistics.cached -= block.bytes;
  }
  void forget(const PinnedBlock& block) noexcept {
    known_.erase(after(block.begin) - 1);
    held -= block.bytes;
  }

  std::vector<Known> known_;  // by address
};

/// Gives pinned memory back to the runtime, as soon as the runtime may be called.
void free_pinned_memory(void* memory) noexcept;

// Never destroyed: static buffers ask and leave until the process ends.
inline PinnedShelves& pinned_shelves() { return immortal<PinnedShelves>(); }

}  // namespace runnel::inline RUNNEL_ABI::detail
