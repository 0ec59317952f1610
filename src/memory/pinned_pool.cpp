// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_blocks.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/device_table.hpp"
#include "memory/pinned_shelves.hpp"

#include <runnel/memory.hpp>

#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

constexpr const char* operation = "allocate pinned memory";

constinit std::atomic<bool> any_block{false};  // ever: until then nothing needs to be looked up

[[nodiscard]] std::uintptr_t address_of(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Takes part of what the limit leaves, for one block.
class Room {
 public:
  explicit Room(std::size_t bytes) noexcept : bytes_{bytes} {
    const std::lock_guard lock{pinned_shelves().lock};
    if (pinned_shelves().held <= pinned_shelves().limit && bytes <= pinned_shelves().limit - pinned_shelves().held) {
      pinned_shelves().held += bytes;
      there_is_ = true;
    }
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    if (!there_is_) return;
    const std::lock_guard lock{pinned_shelves().lock};
    pinned_shelves().held -= bytes_;
  }
  [[nodiscard]] explicit operator bool() const noexcept { return there_is_; }
  void keep() noexcept { there_is_ = false; }

 private:
  std::size_t bytes_;
  bool there_is_ = false;
};

[[nodiscard]] backend::status allocate_native(void*& memory, std::size_t bytes, bool write_combined) noexcept {
  const RelaxedCapture relaxed;
  return write_combined ? backend::malloc_host_write_combined(memory, bytes) : backend::malloc_host(memory, bytes);
}

/// A block that has just been passed, rather than emptying the cache; else null.
[[nodiscard]] void* take_passed(PinnedShelf& shelf, std::size_t at_most) noexcept {
  PinnedShelves& all = pinned_shelves();
  PinnedBlock* const block = all.collect(shelf, at_most, true);
  if (block == nullptr) return nullptr;
  const std::lock_guard lock{all.lock};
  all.own_cached(*block);
  return reinterpret_cast<void*>(block->begin);
}

void* allocate_fresh(PinnedShelf& shelf, std::size_t bytes, bool write_combined) {
  auto block = std::make_unique<PinnedBlock>(PinnedBlock{.begin = 0, .bytes = bytes, .shelf = &shelf});
  void* memory = nullptr;
  const auto attempt = [&](bool last) {
    Room room{bytes};
    if (!room) {
      if (last) throw_error(errc::out_of_memory, operation, "the limit that set_pinned_limit() has set leaves no room for it");
      return false;
    }
    const backend::status s = allocate_native(memory, bytes, write_combined);
    if (s != backend::ok && (last || backend::classify(s) != errc::out_of_memory)) throw_status(s, operation);
    if (s != backend::ok) {
      backend::forget_error(s);
      return false;
    }
    room.keep();
    return true;
  };
  if (!attempt(false)) {
    if (void* const passed = take_passed(shelf, std::numeric_limits<std::size_t>::max())) return passed;
    pinned_shelves().release_idle();
    attempt(true);
  }
  block->begin = address_of(memory);
  try {
    const std::lock_guard lock{pinned_shelves().lock};
    pinned_shelves().add(*block);
  } catch (...) {
    {
      const std::lock_guard lock{pinned_shelves().lock};
      pinned_shelves().held -= bytes;
    }
    free_pinned_memory(memory);
    throw;
  }
  any_block.store(true, std::memory_order_relaxed);
  static_cast<void>(block.release());
  return memory;
}

}  // namespace

bool note_pinned_use(const void* pointer, std::size_t bytes, StreamUse use) {
  if (!any_block.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock{pinned_shelves().lock};
  PinnedBlock* const block = pinned_shelves().find(address_of(pointer));
  if (block == nullptr) return false;
  if (block->state == PinnedBlock::State::in_use) block->add_use(use);
  return address_of(pointer) + bytes <= block->begin + block->bytes;
}

void* allocate_pinned(std::size_t bytes, bool write_combined) {
  if (bytes == 0) return nullptr;
  enter(operation);
  watch_thread_exit();
  require_device(0, operation);
  PinnedShelves& all = pinned_shelves();
  PinnedShelf* shelf = &all.direct;
  if (bytes <= largest_block) {
    bytes = std::bit_ceil(std::max(bytes, smallest_block));
    shelf = &all.shelves[write_combined][static_cast<std::size_t>(std::countr_zero(bytes) - std::countr_zero(smallest_block))];
    const std::lock_guard lock{all.lock};
    if (PinnedBlock* const block = shelf->idle) {
      shelf->idle = block->next;
      all.own_cached(*block);
      count_up(counters.pinned_blocks);
      return reinterpret_cast<void*>(block->begin);
    }
  } else if (bytes > std::numeric_limits<std::size_t>::max() - smallest_block) {
    throw_error(errc::out_of_memory, operation, "the size does not fit an address");
  } else {
    bytes = (bytes + smallest_block - 1) / smallest_block * smallest_block;
  }
  constexpr std::size_t looked_at = 8;
  void* memory = take_passed(*shelf, looked_at);
  if (memory == nullptr) memory = allocate_fresh(*shelf, bytes, write_combined);
  count_up(counters.pinned_blocks);
  return memory;
}

bool give_back_pinned(void* pointer) noexcept {
  const Release mode = release_mode();
  if (mode == Release::never) {
    count_down(counters.pinned_blocks);
    return true;  // nobody will be handed anything out again
  }
  PinnedShelves& all = pinned_shelves();
  PinnedBlock* block = nullptr;
  {
    std::unique_lock lock{all.lock};
    block = all.find(address_of(pointer));
    if (block == nullptr || block->begin != address_of(pointer) || block->state != PinnedBlock::State::in_use) return false;
    count_down(counters.pinned_blocks);
    --all.statistics.blocks;
    all.statistics.in_use -= block->bytes;
    if (block->uses.empty() && !block->shelf->keeps) {
      block->state = PinnedBlock::State::between;
      lock.unlock();
      all.release(block);
      return true;
    }
    ++all.statistics.cached_blocks;
    all.statistics.cached += block->bytes;
    if (block->uses.empty()) {
      block->state = PinnedBlock::State::idle;
      block->next = std::exchange(block->shelf->idle, block);
      return true;
    }
    block->state = PinnedBlock::State::between;
  }
  // In a host function the events have to wait until a thread outside asks for a block.
  if (mode == Release::now) block->record_uses();
  const std::lock_guard lock{all.lock};
  block->state = PinnedBlock::State::pending;
  block->shelf->pending.push(block);
  return true;
}

void free_pinned(void* pointer) noexcept { static_cast<void>(give_back_pinned(pointer)); }

}  // namespace detail

void record_use(const void* pointer, StreamRef stream) {
  constexpr const char* operation = "record a use of pinned memory";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  {
    const std::lock_guard lock{detail::pinned_shelves().lock};
    detail::PinnedBlock* const block = detail::pinned_shelves().find(detail::address_of(pointer));
    if (block != nullptr && block->state == detail::PinnedBlock::State::in_use) return block->add_use({&slot, stream.id()});
  }
  detail::throw_error(errc::invalid_argument, operation, "the pointer is in no block in use of the pinned pool");
}

PinnedStatistics pinned_statistics() {
  detail::refuse_in_child("ask for the use of pinned memory");
  const std::lock_guard lock{detail::pinned_shelves().lock};
  return detail::pinned_shelves().statistics;
}

void set_pinned_limit(std::size_t bytes) {
  detail::refuse_in_child("limit pinned memory");
  bool over = false;
  {
    const std::lock_guard lock{detail::pinned_shelves().lock};
    detail::pinned_shelves().limit = bytes;
    over = detail::pinned_shelves().held > bytes;
  }
  if (over) trim_pinned();
}

std::size_t pinned_limit() {
  detail::refuse_in_child("ask for the limit of pinned memory");
  const std::lock_guard lock{detail::pinned_shelves().lock};
  return detail::pinned_shelves().limit;
}

void trim_pinned() {
  detail::enter("give cached pinned memory back");
  detail::pinned_shelves().release_idle();
}

}  // namespace runnel::inline RUNNEL_ABI
