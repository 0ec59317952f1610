// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_shelves.hpp"

#include "base/relaxed_capture.hpp"
#include "device/internal_calls.hpp"
#include "memory/pinned_pages.hpp"
#include "slot/reclaimer.hpp"

#include <memory>
#include <new>

namespace runnel::inline RUNNEL_ABI::detail {

namespace {

void release_block(Deferred& released) noexcept {
  const std::unique_ptr<PinnedBlock> block{static_cast<PinnedBlock*>(&released)};
  sync::happens_after(block.get());
  call_quietly(0, [&] { return free_pinned_pages(reinterpret_cast<void*>(block->begin)); });
  pinned_shelves().count_released(block->bytes);
}

/// Frees the complete blocks of the shelf on the service thread once the users have passed. Null if
/// there is no memory for it, or no thread.
[[nodiscard]] DeferredWork* free_after(const std::vector<Point>& users) noexcept try {
  if (!reclaimer().try_start()) return nullptr;
  auto work = std::make_unique<DeferredWork>();
  work->others.assign(users.begin(), users.end());
  work->calls_program = true;  // Only the service thread may wait for a full stream.
  work->run = [](Deferred& complete) noexcept {
    const std::unique_ptr<DeferredWork> owned{static_cast<DeferredWork*>(&complete)};
    pinned_shelves().release_uncached();
  };
  return work.release();
} catch (const std::bad_alloc&) {
  return nullptr;
}

/// Whether the block is used by a stream that this search has already asked and found pending. The
/// search need not ask that stream again.
bool is_held(const PinnedBlock& block, uint64_t search) noexcept {
  return std::ranges::any_of(block.users, [=](const Point& user) {
    return user.slot()->last_search.load(std::memory_order_relaxed) == search &&
           user.progress() != Progress::complete;
  });
}

}  // namespace

void PinnedShelves::put_idle(PinnedBlock& block) noexcept {
  block.next = std::exchange(block.shelf->idle, &block);
}

void PinnedShelves::count_released(size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  statistics_.releasing -= bytes;
  total_bytes_ -= bytes;
  ++releases_;
}

bool PinnedShelves::has_room_after_releases(size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  const size_t kept = total_bytes_ - statistics_.releasing;
  return kept <= limit_ && bytes <= limit_ - kept;
}

bool PinnedShelves::try_reserve(size_t bytes) {
  const std::lock_guard lock{lock_};
  if (total_bytes_ > limit_ || bytes > limit_ - total_bytes_) return false;
  if (known_.size() + reserved_entries_ == known_.capacity())
    known_.reserve(std::max<size_t>(16, 2 * known_.capacity()));
  ++reserved_entries_;
  total_bytes_ += bytes;
  return true;
}

void PinnedShelves::cancel_reservation(size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  total_bytes_ -= bytes;
  --reserved_entries_;
}

void PinnedShelves::add(PinnedBlock& block) noexcept {
  const std::lock_guard lock{lock_};
  --reserved_entries_;
  known_.insert(find_after(block.begin), {block.begin, block.begin + block.bytes, &block});
  ++statistics_.misses;
  mark_in_use(block);
}

size_t PinnedShelves::size_of(const void* pointer) noexcept {
  const std::lock_guard lock{lock_};
  const PinnedBlock* const block = find_start(pointer);
  return block != nullptr ? block->bytes : 0;
}

void* PinnedShelves::begin_of(const void* pointer) noexcept {
  const std::lock_guard lock{lock_};
  const PinnedBlock* const block = find(address_of(pointer));
  const bool is_in_use = block != nullptr && block->is_in_use;
  return is_in_use ? reinterpret_cast<void*>(block->begin) : nullptr;
}

bool PinnedShelves::deallocate(void* pointer) noexcept {
  std::unique_lock lock{lock_};
  PinnedBlock* const block = find_start(pointer);
  if (block == nullptr) return false;
  block->is_in_use = false;
  count_down(counters.pinned_blocks);
  --statistics_.blocks;
  statistics_.in_use -= block->bytes;
  ++statistics_.cached_blocks;
  statistics_.cached += block->bytes;
  sync::happens_before(block);
  PinnedShelf& shelf = *block->shelf;
  if (block->users.empty()) {
    put_idle(*block);
    lock.unlock();
    if (&shelf == &uncached_) free_idle(shelf);
    return true;
  }
  lock.unlock();
  for (Point& user : block->users) user.record();
  // Without it, trim() and allocations look for the block.
  DeferredWork* const later = &shelf == &uncached_ ? free_after(block->users) : nullptr;
  lock.lock();
  shelf.pending.push(*block);
  lock.unlock();
  if (later != nullptr) run_after(*later);
  return true;
}

PinnedBlock* PinnedShelves::pop_pending(PinnedShelf& shelf, uint64_t search,
                                        size_t& left) noexcept {
  const std::lock_guard lock{lock_};
  for (; left > 0; --left) {
    auto* const block = static_cast<PinnedBlock*>(shelf.pending.pop());
    if (block == nullptr) return nullptr;
    if (!is_held(*block, search)) {
      --left;
      return block;
    }
    shelf.pending.push(*block);
  }
  return nullptr;
}

bool PinnedShelves::collect(PinnedShelf& shelf, size_t at_most, bool stops_at_first) noexcept {
  {
    const std::lock_guard lock{lock_};
    at_most = std::min(at_most, shelf.pending.size());
  }
  if (at_most == 0) return false;
  const RelaxedCapture relaxed;
  static constinit sync::Atomic<uint64_t> searches{0};
  const uint64_t search = searches.fetch_add(1, std::memory_order_relaxed) + 1;
  while (PinnedBlock* const block = pop_pending(shelf, search, at_most)) {
    const Progress progress = advance(block->users);
    for (const Point& user : block->users)
      user.slot()->last_search.store(search, std::memory_order_relaxed);
    const std::lock_guard lock{lock_};
    if (progress != Progress::complete) {
      shelf.pending.push(*block);
      continue;
    }
    // The caller has found the block's users complete.
    sync::happens_before(block);
    put_idle(*block);
    if (stops_at_first) return true;
  }
  return false;
}

void* PinnedShelves::take_complete(PinnedShelf& shelf, size_t at_most) noexcept {
  return &shelf != &uncached_ && collect(shelf, at_most, true) ? take_idle(shelf) : nullptr;
}

void PinnedShelves::free_idle(PinnedShelf& shelf) noexcept {
  Deferred* blocks = nullptr;
  {
    const std::lock_guard lock{lock_};
    blocks = std::exchange(shelf.idle, nullptr);
    for (Deferred* each = blocks; each != nullptr; each = each->next) {
      const auto& block = static_cast<PinnedBlock&>(*each);
      uncache(block);
      statistics_.releasing += block.bytes;
      // The runtime can reuse the address for another thread as soon as it has the memory.
      known_.erase(find_after(block.begin) - 1);
      each->run = release_block;
    }
  }
  while (blocks != nullptr) release_on_thread(*std::exchange(blocks, blocks->next));
}

void PinnedShelves::release_idle_of(PinnedShelf& shelf) noexcept {
  collect(shelf, std::numeric_limits<size_t>::max(), false);
  free_idle(shelf);
}

PinnedRemainder PinnedShelves::release_idle() noexcept {
  for (auto& kind : shelves_)
    for (PinnedShelf& shelf : kind) release_idle_of(shelf);
  release_uncached();
  const std::lock_guard lock{lock_};
  return {statistics_.cached_blocks, statistics_.releasing, releases_};
}

PinnedStatistics PinnedShelves::statistics() noexcept {
  const std::lock_guard lock{lock_};
  return statistics_;
}

size_t PinnedShelves::limit() noexcept {
  const std::lock_guard lock{lock_};
  return limit_;
}

bool PinnedShelves::set_limit(size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  limit_ = bytes;
  return total_bytes_ > bytes;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
