// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_shelves.hpp"

#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/call_quietly.hpp"

#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

void free_pinned_memory(void* memory) noexcept {
  const auto free = [](const Postponed& item) noexcept { call_quietly(item.device, [&] { return backend::free_host(item.handle); }); };
  detail::release({free, memory, 0});
}

namespace {

/// Of a block that is in the books no more: as soon as the runtime has the memory, another thread may be given the same address.
void free_forgotten(PinnedBlock* block) noexcept {
  void* const memory = reinterpret_cast<void*>(block->begin);
  delete block;
  free_pinned_memory(memory);
}

}  // namespace

PinnedBlock* PinnedShelves::collect(PinnedShelf& shelf, std::size_t at_most, bool take) noexcept {
  using State = PinnedBlock::State;
  using Progress = PinnedBlock::Progress;
  {
    const std::lock_guard held_lock{lock};
    at_most = std::min(at_most, shelf.pending.size());
  }
  if (at_most == 0) return nullptr;
  const RelaxedCapture relaxed;
  PinnedBlock* taken = nullptr;
  for (std::size_t i = 0; i < at_most && taken == nullptr; ++i) {
    PinnedBlock* block = nullptr;
    {
      const std::lock_guard held_lock{lock};
      block = shelf.pending.pop();
      if (block != nullptr) block->state = State::between;
    }
    if (block == nullptr) break;
    const Progress progress = block->advance();
    std::unique_lock held_lock{lock};
    if (progress == Progress::waiting) {
      block->state = State::pending;
      shelf.pending.push(block);
    } else if (progress == Progress::passed && !shelf.keeps) {
      uncache(*block);
      forget(*block);
      held_lock.unlock();
      free_forgotten(block);
    } else if (progress == Progress::passed && take) {
      taken = block;
    } else if (progress == Progress::passed) {
      block->state = State::idle;
      block->next = std::exchange(shelf.idle, block);
    }
  }
  return taken;
}

void PinnedShelves::release_idle() noexcept {
  const auto empty = [&](PinnedShelf& shelf) {
    collect(shelf, std::numeric_limits<std::size_t>::max(), false);
    PinnedBlock* blocks = nullptr;
    {
      const std::lock_guard held_lock{lock};
      blocks = std::exchange(shelf.idle, nullptr);
      for (PinnedBlock* block = blocks; block != nullptr; block = block->next) {
        uncache(*block);
        forget(*block);
      }
    }
    while (blocks != nullptr) free_forgotten(std::exchange(blocks, blocks->next));
  };
  for (auto& kind : shelves)
    for (PinnedShelf& shelf : kind) empty(shelf);
  empty(direct);
}

void PinnedShelves::release(PinnedBlock* block) noexcept {
  {
    const std::lock_guard held_lock{lock};
    forget(*block);
  }
  free_forgotten(block);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
