// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_shelves.hpp"

#include "base/relaxed_capture.hpp"
#include "device/internal_calls.hpp"
#include "memory/pinned_pages.hpp"
#include "slot/reclaimer.hpp"

#include <memory>
#include <new>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

using State = PinnedBlock::State;

namespace {

void release_block(Deferred& released) noexcept {
  const auto* const block = static_cast<PinnedBlock*>(&released);
  sync::happens_after(block);
  void* const memory = reinterpret_cast<void*>(block->begin);
  const std::size_t bytes = block->bytes;
  delete block;
  call_quietly(0, [memory] { return free_pinned_pages(memory); });
  pinned_shelves().count_released(bytes);
}

/// Waits for the block's users. Null if there is no memory for it.
[[nodiscard]] DeferredWork* wait_for(const std::vector<Point>& users) noexcept try {
  auto work = std::make_unique<DeferredWork>();
  work->others.assign(users.begin(), users.end());
  return work.release();
} catch (const std::bad_alloc&) {
  return nullptr;
}

/// Returns a block to the runtime. Requires: the block was removed from known_. It must be removed
/// first, because the runtime can reuse the address for another thread as soon as it has the
/// memory.
void free_removed(Deferred& block) noexcept {
  block.run = release_block;
  release_on_thread(block);
}

}  // namespace

void PinnedShelves::mark_free(PinnedBlock& block) noexcept {
  count_down(counters.pinned_blocks);
  --statistics_.blocks;
  statistics_.in_use -= block.bytes;
}

void PinnedShelves::cache(const PinnedBlock& block) noexcept {
  ++statistics_.cached_blocks;
  statistics_.cached += block.bytes;
}

void PinnedShelves::put_idle(PinnedBlock& block) noexcept {
  block.state = State::idle;
  block.next = std::exchange(block.shelf->idle, &block);
}

void PinnedShelves::put_pending(PinnedBlock& block) noexcept {
  block.state = State::pending;
  block.shelf->pending.push(block);
}

void PinnedShelves::remove_known(const PinnedBlock& block) noexcept {
  known_.erase(find_after(block.begin) - 1);
  statistics_.releasing += block.bytes;
}

void PinnedShelves::count_released(std::size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  statistics_.releasing -= bytes;
  total_bytes_ -= bytes;
  ++releases_;
}

bool PinnedShelves::has_room_after_releases(std::size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  const std::size_t kept = total_bytes_ - statistics_.releasing;
  return kept <= limit_ && bytes <= limit_ - kept;
}

bool PinnedShelves::try_reserve(std::size_t bytes) {
  const std::lock_guard lock{lock_};
  if (total_bytes_ > limit_ || bytes > limit_ - total_bytes_) return false;
  if (known_.size() + reserved_entries_ == known_.capacity())
    known_.reserve(std::max<std::size_t>(16, 2 * known_.capacity()));
  ++reserved_entries_;
  total_bytes_ += bytes;
  return true;
}

void PinnedShelves::cancel_reservation(std::size_t bytes) noexcept {
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

bool PinnedShelves::try_add_use(const void* pointer, StreamKey use) {
  const std::lock_guard lock{lock_};
  PinnedBlock* const block = find(address_of(pointer));
  if (block == nullptr || block->state != State::in_use) return false;
  block->add_use(use);
  return true;
}

std::size_t PinnedShelves::size_of(const void* pointer) noexcept {
  const std::lock_guard lock{lock_};
  const PinnedBlock* const block = find_start(pointer);
  return block != nullptr ? block->bytes : 0;
}

void* PinnedShelves::begin_of(const void* pointer) noexcept {
  const std::lock_guard lock{lock_};
  const PinnedBlock* const block = find(address_of(pointer));
  const bool is_in_use = block != nullptr && block->state == State::in_use;
  return is_in_use ? reinterpret_cast<void*>(block->begin) : nullptr;
}

bool PinnedShelves::deallocate(void* pointer) noexcept {
  std::unique_lock lock{lock_};
  PinnedBlock* const block = find_start(pointer);
  if (block == nullptr) return false;
  mark_free(*block);
  sync::happens_before(block);
  if (!block->users.empty()) {
    cache(*block);
    block->state = State::detached;
    lock.unlock();
    block->record_uses();
    if (!block->shelf->caches_blocks) return wait_for_users(*block), true;
    lock.lock();
    put_pending(*block);
  } else if (block->shelf->caches_blocks) {
    cache(*block);
    put_idle(*block);
  } else {
    remove_known(*block);
    lock.unlock();
    free_removed(*block);
  }
  return true;
}

void PinnedShelves::wait_for_users(PinnedBlock& block) noexcept {
  DeferredWork* const work = wait_for(block.users);
  {
    const std::lock_guard lock{lock_};
    put_pending(block);
  }
  if (work == nullptr) return;  // trim() and allocations look for the block.
  if (!reclaimer().try_start()) {
    delete work;
    return;
  }
  work->calls_program = true;  // It records, and a stream may be full.
  work->run = [](Deferred& complete) noexcept {
    const std::unique_ptr<DeferredWork> owned{static_cast<DeferredWork*>(&complete)};
    pinned_shelves().release_idle_of(pinned_shelves().uncached_);
  };
  run_after(*work);
}

bool PinnedShelves::put_polled(PinnedBlock& block, Progress progress, OnComplete action) noexcept {
  std::unique_lock lock{lock_};
  if (progress != Progress::complete) {
    put_pending(block);
    return false;
  }
  // The caller has found the block's users complete.
  sync::happens_before(&block);
  if (!block.shelf->caches_blocks) {
    uncache(block);
    remove_known(block);
    lock.unlock();
    free_removed(block);
    return false;
  }
  const bool is_reused = action == OnComplete::take && !exceeds_limit();
  if (is_reused)
    reuse_cached(block);
  else
    put_idle(block);
  return is_reused;
}

PinnedBlock* PinnedShelves::detach_pending(PinnedShelf& shelf, const AskedStreams& asked,
                                           std::size_t& left) noexcept {
  const std::lock_guard lock{lock_};
  for (; left > 0; --left) {
    auto* const block = static_cast<PinnedBlock*>(shelf.pending.pop());
    if (block == nullptr) return nullptr;
    if (!asked.hold(*block)) {
      --left;
      block->state = State::detached;
      return block;
    }
    shelf.pending.push(*block);
  }
  return nullptr;
}

PinnedBlock* PinnedShelves::collect(PinnedShelf& shelf, std::size_t at_most,
                                    OnComplete action) noexcept {
  {
    const std::lock_guard lock{lock_};
    at_most = std::min(at_most, shelf.pending.size());
  }
  if (at_most == 0) return nullptr;
  const RelaxedCapture relaxed;
  AskedStreams asked;
  while (PinnedBlock* const block = detach_pending(shelf, asked, at_most)) {
    const Progress progress = advance(block->users);
    asked.add(*block);
    if (progress == Progress::unknown) reclaimer().start_device_wait();
    if (put_polled(*block, progress, action)) return block;
  }
  return nullptr;
}

void* PinnedShelves::take_complete(PinnedShelf& shelf, std::size_t at_most) noexcept {
  const PinnedBlock* const block = collect(shelf, at_most, OnComplete::take);
  return block != nullptr ? reinterpret_cast<void*>(block->begin) : nullptr;
}

void PinnedShelves::release_idle_of(PinnedShelf& shelf) noexcept {
  collect(shelf, std::numeric_limits<std::size_t>::max(), OnComplete::make_idle);
  Deferred* blocks = nullptr;
  {
    const std::lock_guard lock{lock_};
    blocks = std::exchange(shelf.idle, nullptr);
    for (Deferred* each = blocks; each != nullptr; each = each->next) {
      const auto& block = static_cast<PinnedBlock&>(*each);
      uncache(block);
      remove_known(block);
    }
  }
  while (blocks != nullptr) free_removed(*std::exchange(blocks, blocks->next));
}

PinnedRemainder PinnedShelves::release_idle() noexcept {
  for (auto& kind : shelves_)
    for (PinnedShelf& shelf : kind) release_idle_of(shelf);
  release_idle_of(uncached_);
  const std::lock_guard lock{lock_};
  return {statistics_.cached_blocks, statistics_.releasing, releases_};
}

PinnedStatistics PinnedShelves::statistics() noexcept {
  const std::lock_guard lock{lock_};
  return statistics_;
}

std::size_t PinnedShelves::limit() noexcept {
  const std::lock_guard lock{lock_};
  return limit_;
}

bool PinnedShelves::set_limit(std::size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  limit_ = bytes;
  return total_bytes_ > bytes;
}

}}}  // namespace runnel::RUNNEL_ABI::detail
