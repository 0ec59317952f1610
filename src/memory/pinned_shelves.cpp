// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_shelves.hpp"

#include "base/relaxed_capture.hpp"
#include "device/internal_calls.hpp"
#include "memory/pinned_pages.hpp"

#include <runnel/detail/backend.hpp>

#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

using State = PinnedBlock::State;

namespace {

void release_block(const Postponed& item) noexcept {
  const auto* const block = static_cast<PinnedBlock*>(item.handle);
  sync::happens_after(block);
  void* const memory = reinterpret_cast<void*>(block->begin);
  const std::size_t bytes = block->bytes;
  delete block;
  call_quietly(item.device, [memory] { return free_pinned_pages(memory); });
  pinned_shelves().note_released(bytes);
}

/// Frees a block that is among the known ones no more. It is forgotten first: as soon as the
/// runtime has the memory, another thread may be given the same address.
void free_forgotten(PinnedBlock* block) noexcept {
  block->late.item = {release_block, block, 0};
  release_on_thread(block->late);
}

}  // namespace

void PinnedShelves::disown(PinnedBlock& block) noexcept {
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
  block.shelf->pending.push(&block);
}

void PinnedShelves::forget(const PinnedBlock& block) noexcept {
  known_.erase(find_after(block.begin) - 1);
  statistics_.releasing += block.bytes;
}

void PinnedShelves::note_released(std::size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  statistics_.releasing -= bytes;
  held_ -= bytes;
  ++releases_;
}

bool PinnedShelves::has_room_later(std::size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  const std::size_t kept = held_ - statistics_.releasing;
  return kept <= limit_ && bytes <= limit_ - kept;
}

bool PinnedShelves::try_reserve(std::size_t bytes) {
  const std::lock_guard lock{lock_};
  if (held_ > limit_ || bytes > limit_ - held_) return false;
  if (known_.size() + reserved_entries_ == known_.capacity())
    known_.reserve(std::max<std::size_t>(16, 2 * known_.capacity()));
  ++reserved_entries_;
  held_ += bytes;
  return true;
}

void PinnedShelves::cancel_reservation(std::size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  held_ -= bytes;
  --reserved_entries_;
}

void PinnedShelves::add(PinnedBlock& block) noexcept {
  const std::lock_guard lock{lock_};
  --reserved_entries_;
  known_.insert(find_after(block.begin), {block.begin, block.begin + block.bytes, &block});
  ++statistics_.misses;
  own(block);
}

bool PinnedShelves::try_add_use(const void* pointer, StreamUse use) {
  const std::lock_guard lock{lock_};
  PinnedBlock* const block = find(address_of(pointer));
  if (block == nullptr || block->state != State::in_use) return false;
  block->add_use(use);
  return true;
}

std::size_t PinnedShelves::size_of(const void* pointer) noexcept {
  const std::lock_guard lock{lock_};
  const PinnedBlock* const block = find(address_of(pointer));
  return block != nullptr && block->begin == address_of(pointer) && block->state == State::in_use
             ? block->bytes
             : 0;
}

bool PinnedShelves::give_back(void* pointer, bool record) noexcept {
  std::unique_lock lock{lock_};
  PinnedBlock* const block = find(address_of(pointer));
  if (block == nullptr || block->begin != address_of(pointer) || block->state != State::in_use)
    return false;
  disown(*block);
  sync::happens_before(block);
  if (!block->users.empty()) {
    cache(*block);
    block->state = State::between;
    lock.unlock();
    if (record) block->record_uses();
    lock.lock();
    put_pending(*block);
  } else if (block->shelf->keeps) {
    cache(*block);
    put_idle(*block);
  } else {
    forget(*block);
    lock.unlock();
    free_forgotten(block);
  }
  return true;
}

std::size_t PinnedShelves::count_pending(PinnedShelf& shelf) noexcept {
  const std::lock_guard lock{lock_};
  return shelf.pending.size();
}

PinnedBlock* PinnedShelves::pop_pending(PinnedShelf& shelf) noexcept {
  const std::lock_guard lock{lock_};
  PinnedBlock* const block = shelf.pending.pop();
  if (block != nullptr) block->state = State::between;
  return block;
}

bool PinnedShelves::settle(PinnedBlock& block, Progress progress, Then then) noexcept {
  std::unique_lock lock{lock_};
  if (progress == Progress::pending || progress == Progress::stalled) {
    put_pending(block);
    return false;
  }
  if (progress == Progress::unknown) return false;  // it stays in no list
  // the caller has seen the block's users complete
  sync::happens_before(&block);
  if (!block.shelf->keeps) {
    uncache(block);
    forget(block);
    lock.unlock();
    free_forgotten(&block);
    return false;
  }
  const bool is_taken = then == Then::taken && !exceeds_limit();
  if (is_taken)
    own_cached(block);
  else
    put_idle(block);
  return is_taken;
}

PinnedBlock* PinnedShelves::collect(PinnedShelf& shelf, std::size_t at_most, Then then) noexcept {
  at_most = std::min(at_most, count_pending(shelf));
  if (at_most == 0) return nullptr;
  const RelaxedCapture relaxed;
  for (std::size_t i = 0; i < at_most; ++i) {
    PinnedBlock* const block = pop_pending(shelf);
    if (block == nullptr) return nullptr;
    const Progress progress = advance(block->users);
    if (settle(*block, progress, then)) return block;
  }
  return nullptr;
}

void* PinnedShelves::take_complete(PinnedShelf& shelf, std::size_t at_most) noexcept {
  const PinnedBlock* const block = collect(shelf, at_most, Then::taken);
  return block != nullptr ? reinterpret_cast<void*>(block->begin) : nullptr;
}

void PinnedShelves::release_idle_of(PinnedShelf& shelf) noexcept {
  collect(shelf, std::numeric_limits<std::size_t>::max(), Then::idle);
  PinnedBlock* blocks = nullptr;
  {
    const std::lock_guard lock{lock_};
    blocks = std::exchange(shelf.idle, nullptr);
    for (PinnedBlock* block = blocks; block != nullptr; block = block->next) {
      uncache(*block);
      forget(*block);
    }
  }
  while (blocks != nullptr) free_forgotten(std::exchange(blocks, blocks->next));
}

PinnedRest PinnedShelves::release_idle() noexcept {
  for (auto& kind : shelves_)
    for (PinnedShelf& shelf : kind) release_idle_of(shelf);
  release_idle_of(direct_);
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
  return held_ > bytes;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
