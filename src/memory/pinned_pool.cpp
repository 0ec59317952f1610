// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_pool.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "memory/pinned_pages.hpp"
#include "memory/pinned_shelves.hpp"
#include "memory/releaser.hpp"

#include <runnel/memory.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <span>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

using namespace std::chrono_literals;

namespace detail {
namespace {

constexpr const char* operation = "allocate pinned memory";
constexpr size_t all_blocks = std::numeric_limits<size_t>::max();

// Until the first block is allocated, lookups are skipped.
constinit sync::Atomic<bool> has_blocks{false};

/// Reserves and allocates a new block. Returns null if there is not enough memory; `refusal` is
/// then the runtime's status, or `ok` if the limit was reached. @throws any other error of the
/// runtime
[[nodiscard]] void* make_block(PinnedShelf& shelf, size_t bytes, bool write_combined,
                               backend::status& refusal) {
  refusal = backend::ok;
  auto block = std::make_unique<PinnedBlock>(PinnedBlock{{}, 0, bytes, &shelf});
  if (!pinned_shelves().try_reserve(bytes)) return nullptr;
  void* memory = nullptr;
  refusal = internal_call([&] {
    return write_combined ? backend::malloc_host_write_combined(memory, bytes)
                          : allocate_pinned_pages(memory, bytes);
  });
  if (refusal == backend::ok) {
    block->begin = address_of(memory);
    pinned_shelves().add(*block.release());
    has_blocks.store(true, std::memory_order_relaxed);
    return memory;
  }
  pinned_shelves().cancel_reservation(bytes);
  if (backend::classify(refusal) != errc::out_of_memory) throw_status(refusal, operation);
  backend::forget_error(refusal);
  return nullptr;
}

/// Tries for a limited time to reuse a pending block, or to release the idle blocks to the runtime
/// and to allocate again. A block that was freed on an idle stream can be reused once its event is
/// complete, which takes the device some microseconds, and so can a block that another thread is
/// polling. Releases to the runtime take longer, at worst until all devices are idle. Null if there
/// is still none.
[[nodiscard]] void* wait_for_room(PinnedShelf& shelf, size_t bytes, bool write_combined,
                                  backend::status& refusal) {
  const ScopedWait wait{operation};
  if (auto* const give_back_more = give_back_copy_memory.load(std::memory_order_acquire))
    give_back_more(refusal == backend::ok);
  const auto cached_until = sync::Clock::now() + short_timeout;
  size_t tried_after = all_blocks;  // A number of releases.
  void* found = nullptr;
  try_for(release_timeout, [&] {
    found = pinned_shelves().take_complete(shelf, all_blocks);
    if (found != nullptr) return true;
    const PinnedRemainder rest = pinned_shelves().release_idle();
    if (rest.releases != std::exchange(tried_after, rest.releases))
      found = make_block(shelf, bytes, write_combined, refusal);
    if (found != nullptr) return true;
    const bool may_come = rest.releasing != 0 && (refusal != backend::ok ||
                                                  pinned_shelves().has_room_after_releases(bytes));
    return !may_come && (rest.cached_blocks == 0 || sync::Clock::now() >= cached_until);
  });
  return found;
}

/// Throws for an allocation of `bytes`. The text gives that size, where the pool's memory is, and
/// the limit or advice. `refusal` is the runtime's status, or ok if the block would exceed the
/// pool's limit.
[[noreturn]] void throw_no_room(backend::status refusal, size_t bytes, size_t block) {
  const PinnedStatistics now = PinnedPool::statistics();
  char limit[96] = "use smaller pieces";
  if (refusal == backend::ok)
    std::snprintf(limit, sizeof limit, "the limit that PinnedPool::set_limit() has set is %zu",
                  PinnedPool::limit());
  throw_formatted(errc::out_of_memory, operation, refusal,
                  "%zu bytes were asked for, which take a block of %zu; %zu are in use, %zu were "
                  "freed but are still used by streams, %zu are on their way to the runtime; %s",
                  bytes, block, now.in_use, now.cached, now.releasing, limit);
}

constexpr size_t max_looked_at = 256;

/// Null if no block of the pool can be used again.
[[nodiscard]] void* take_cached(std::span<PinnedShelf> shelves) noexcept {
  for (PinnedShelf& each : shelves)
    if (void* const idle = pinned_shelves().take_idle(each)) return idle;
  for (PinnedShelf& each : shelves)
    if (void* const complete = pinned_shelves().take_complete(each, max_looked_at)) return complete;
  return nullptr;
}

/// Takes a block of `bytes`, for a program that has asked for `asked`. Waits for a limited time if
/// there is not enough memory.
void* take_block(size_t asked, size_t bytes, bool write_combined) {
  const std::span<PinnedShelf> shelves = pinned_shelves().shelves_for(bytes, write_combined);
  if (void* const cached = take_cached(shelves)) return cached;
  PinnedShelf& shelf = shelves.front();
  backend::status refusal = backend::ok;
  if (void* const fresh = make_block(shelf, bytes, write_combined, refusal)) return fresh;
  if (void* const found = wait_for_room(shelf, bytes, write_combined, refusal)) return found;
  throw_no_room(refusal, asked, bytes);
}

}  // namespace

bool note_pinned_use(const void* pointer, size_t bytes, StreamKey use) {
  return has_blocks.load(std::memory_order_relaxed) &&
         pinned_shelves().note_use(pointer, bytes, use);
}

void* pinned_block_of(const void* pointer) noexcept { return pinned_shelves().begin_of(pointer); }

void* allocate_pinned(size_t bytes, bool write_combined) {
  if (bytes == 0) return nullptr;
  enter(operation);
  watch_main_thread();
  require_device(0, operation);
  if (bytes > std::numeric_limits<size_t>::max() - smallest_block)
    throw_error(errc::out_of_memory, operation, "the size does not fit an address");
  const size_t size = block_size_for(bytes);
  ScopedEvent event{[&] { return about_allocation(operation, MemoryKind::pinned, size); }};
  void* const block = take_block(bytes, size, write_combined);
  event.allocated(block);
  if (Operation* const done = event.operation()) [[unlikely]]
    done->bytes = pinned_shelves().size_of(block);  // A larger one may have been free.
  return block;
}

bool deallocate_pinned(void* pointer) noexcept {
  const Release mode = release_mode();
  if (mode != Release::never && is_observed()) [[unlikely]] {
    const size_t bytes = pinned_shelves().size_of(pointer);
    if (bytes != 0) emit_free("free pinned memory", MemoryKind::pinned, pointer, bytes);
  }
  if (mode != Release::never) return pinned_shelves().deallocate(pointer);
  count_down(counters.pinned_blocks);
  return true;  // The block is leaked, because the pool is no longer used.
}

void* try_allocate_own_pinned(size_t bytes) try {
  bytes = block_size_for(bytes);
  const std::span<PinnedShelf> shelves = pinned_shelves().shelves_for(bytes, false);
  void* memory = take_cached(shelves);
  backend::status refusal = backend::ok;
  if (memory == nullptr) memory = make_block(shelves.front(), bytes, false, refusal);
  if (memory != nullptr) count_down(counters.pinned_blocks);
  return memory;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void free_own_pinned(void* pointer) noexcept {
  const Release mode = release_mode();
  if (mode == Release::never) return;
  count_up(counters.pinned_blocks);
  static_cast<void>(pinned_shelves().deallocate(pointer));
}

void free_pinned(void* pointer) noexcept { static_cast<void>(deallocate_pinned(pointer)); }

}  // namespace detail

using namespace detail;

PinnedStatistics PinnedPool::statistics() {
  refuse_in_child("ask for the use of pinned memory");
  return pinned_shelves().statistics();
}

void PinnedPool::reset_peak() {
  refuse_in_child("forget the peak of pinned memory");
  pinned_shelves().reset_peak();
}

void PinnedPool::set_limit(size_t bytes) {
  constexpr const char* limiting = "limit pinned memory";
  refuse_in_child(limiting);
  if (in_host_function) enter(limiting);  // Throws before anything has changed.
  if (pinned_shelves().set_limit(bytes)) trim();
}

size_t PinnedPool::limit() {
  refuse_in_child("ask for the limit of pinned memory");
  return pinned_shelves().limit();
}

void PinnedPool::trim() {
  constexpr const char* trimming = "give cached pinned memory back";
  enter(trimming);
  try_for(1ms, [] { return pinned_shelves().release_idle().cached_blocks == 0; });
  wait_after_trim(trimming);
}

}  // namespace runnel::inline RUNNEL_ABI
