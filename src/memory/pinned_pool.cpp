// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_pool.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/not_copied.hpp"
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
#include <bit>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

using namespace std::chrono_literals;

namespace detail {
namespace {

constexpr const char* operation = "allocate pinned memory";
constexpr std::size_t all_blocks = std::numeric_limits<std::size_t>::max();

// Until the first block is allocated, lookups are skipped.
constinit sync::Atomic<bool> has_blocks{false};

/// A reservation for one block, which the destructor cancels unless commit() was called.
class Reservation : NotCopied {
 public:
  explicit Reservation(std::size_t bytes)
      : bytes_{bytes}, is_reserved_{pinned_shelves().try_reserve(bytes)} {}
  ~Reservation() {
    if (is_reserved_) pinned_shelves().cancel_reservation(bytes_);
  }
  [[nodiscard]] explicit operator bool() const noexcept { return is_reserved_; }
  void commit() noexcept { is_reserved_ = false; }

 private:
  std::size_t bytes_;
  bool is_reserved_;
};

/// The size of the block for a request of `bytes` bytes.
[[nodiscard]] std::size_t round_up(std::size_t bytes) {
  if (bytes <= largest_block) return std::bit_ceil(std::max(bytes, smallest_block));
  if (bytes > std::numeric_limits<std::size_t>::max() - smallest_block)
    throw_error(errc::out_of_memory, operation, "the size does not fit an address");
  return (bytes + smallest_block - 1) / smallest_block * smallest_block;
}

[[nodiscard]] backend::status allocate_native(void*& memory, std::size_t bytes,
                                              bool write_combined) noexcept {
  return internal_call([&] {
    return write_combined ? backend::malloc_host_write_combined(memory, bytes)
                          : allocate_pinned_pages(memory, bytes);
  });
}

/// Reserves and allocates. Returns null if there is not enough memory; `refusal` is then the
/// runtime's status, or `ok` if the limit was reached. @throws any other error of the runtime
[[nodiscard]] void* try_allocate(std::size_t bytes, bool write_combined, backend::status& refusal) {
  refusal = backend::ok;
  Reservation reservation{bytes};
  if (!reservation) return nullptr;
  void* memory = nullptr;
  refusal = allocate_native(memory, bytes, write_combined);
  if (refusal == backend::ok) {
    reservation.commit();
    return memory;
  }
  if (backend::classify(refusal) != errc::out_of_memory) throw_status(refusal, operation);
  backend::forget_error(refusal);
  return nullptr;
}

/// Adds new memory to the pool as a block in use. Requires: it was reserved.
void* add_block(std::unique_ptr<PinnedBlock> block, void* memory) noexcept {
  block->begin = address_of(memory);
  pinned_shelves().add(*block.release());
  has_blocks.store(true, std::memory_order_relaxed);
  return memory;
}

/// The result of wait_for_room(); both are null if there is still no memory.
struct FoundMemory {
  void* complete = nullptr;  // The memory of a reused block.
  void* memory = nullptr;    // New memory from the runtime.
};

/// Tries for a limited time to reuse a pending block, or to release the idle blocks to the runtime
/// and to allocate again. A block that was freed on an idle stream can be reused once its event is
/// complete, which takes the device some microseconds, and so can a block that another thread is
/// polling. Releases to the runtime take longer, at worst until all devices are idle.
[[nodiscard]] FoundMemory wait_for_room(PinnedShelf& shelf, std::size_t bytes, bool write_combined,
                                        backend::status& refusal) {
  const ScopedWait wait{operation};
  const auto cached_until = sync::Clock::now() + short_timeout;
  std::size_t tried_after = all_blocks;  // A number of releases.
  FoundMemory found;
  try_for(release_timeout, [&] {
    found.complete = pinned_shelves().take_complete(shelf, all_blocks);
    if (found.complete != nullptr) return true;
    const PinnedRemainder rest = pinned_shelves().release_idle();
    if (rest.releases != std::exchange(tried_after, rest.releases))
      found.memory = try_allocate(bytes, write_combined, refusal);
    if (found.memory != nullptr) return true;
    const bool may_come = rest.releasing != 0 && (refusal != backend::ok ||
                                                  pinned_shelves().has_room_after_releases(bytes));
    return !may_come && (rest.cached_blocks == 0 || sync::Clock::now() >= cached_until);
  });
  return found;
}

/// Throws for an allocation of `bytes`. The text gives that size, the bytes in use, and the limit
/// or advice. `refusal` is the runtime's status, or ok if the block would exceed the pool's limit.
[[noreturn]] void throw_no_room(backend::status refusal, std::size_t bytes) {
  const std::size_t in_use = PinnedPool::statistics().in_use;
  char reason[200];
  if (refusal == backend::ok) {
    std::snprintf(reason, sizeof reason,
                  "%zu bytes were asked for, %zu are in use, and the limit that "
                  "PinnedPool::set_limit() has set is %zu",
                  bytes, in_use, PinnedPool::limit());
    throw_error(errc::out_of_memory, operation, reason);
  }
  if (backend::classify(refusal) != errc::out_of_memory) throw_status(refusal, operation);
  backend::forget_error(refusal);
  std::snprintf(reason, sizeof reason,
                "%zu bytes were asked for, and %zu are in use: use smaller pieces, or call "
                "Staging::trim()",
                bytes, in_use);
  throw_error(errc::out_of_memory, operation, reason, refusal, backend::error_name(refusal));
}

/// Allocates a new block from the runtime. Waits for a limited time if there is not enough memory.
void* allocate_new(PinnedShelf& shelf, std::size_t bytes, bool write_combined) {
  auto block = std::make_unique<PinnedBlock>(PinnedBlock{{}, 0, bytes, &shelf});
  backend::status refusal = backend::ok;
  void* memory = try_allocate(bytes, write_combined, refusal);
  if (memory == nullptr) {
    const FoundMemory found = wait_for_room(shelf, bytes, write_combined, refusal);
    if (found.complete != nullptr) return found.complete;
    memory = found.memory;
  }
  if (memory != nullptr) return add_block(std::move(block), memory);
  throw_no_room(refusal, bytes);
}

}  // namespace

bool note_pinned_use(const void* pointer, std::size_t bytes, StreamUse use) {
  return has_blocks.load(std::memory_order_relaxed) &&
         pinned_shelves().note_use(pointer, bytes, use);
}

namespace {

void* take_block(std::size_t bytes, bool write_combined) {
  constexpr std::size_t most_polled = 8;
  PinnedShelves& shelves = pinned_shelves();
  PinnedShelf& shelf = shelves.shelf_for(bytes, write_combined);
  if (void* const idle = shelves.take_idle(shelf)) return idle;
  if (void* const complete = shelves.take_complete(shelf, most_polled)) return complete;
  return allocate_new(shelf, bytes, write_combined);
}

}  // namespace

void* allocate_pinned(std::size_t bytes, bool write_combined) {
  if (bytes == 0) return nullptr;
  enter(operation);
  watch_main_thread();
  require_device(0, operation);
  bytes = round_up(bytes);
  ScopedEvent event{[&] { return about_allocation(operation, MemoryKind::pinned, bytes); }};
  void* const block = take_block(bytes, write_combined);
  event.allocated(block);
  return block;
}

bool deallocate_pinned(void* pointer) noexcept {
  const Release mode = release_mode();
  if (mode != Release::never && is_observed()) [[unlikely]] {
    const std::size_t bytes = pinned_shelves().size_of(pointer);
    if (bytes != 0) emit_free("free pinned memory", MemoryKind::pinned, pointer, bytes);
  }
  if (mode != Release::never) return pinned_shelves().deallocate(pointer, mode == Release::now);
  count_down(counters.pinned_blocks);
  return true;  // The block is leaked, because the pool is no longer used.
}

void free_pinned(void* pointer) noexcept { static_cast<void>(deallocate_pinned(pointer)); }

}  // namespace detail

PinnedStatistics PinnedPool::statistics() {
  detail::refuse_in_child("ask for the use of pinned memory");
  return detail::pinned_shelves().statistics();
}

void PinnedPool::reset_peak() {
  detail::refuse_in_child("forget the peak of pinned memory");
  detail::pinned_shelves().reset_peak();
}

void PinnedPool::set_limit(std::size_t bytes) {
  constexpr const char* operation = "limit pinned memory";
  detail::refuse_in_child(operation);
  if (detail::in_host_function) detail::enter(operation);  // Throws before anything has changed.
  if (detail::pinned_shelves().set_limit(bytes)) trim();
}

std::size_t PinnedPool::limit() {
  detail::refuse_in_child("ask for the limit of pinned memory");
  return detail::pinned_shelves().limit();
}

void PinnedPool::trim() {
  constexpr const char* operation = "give cached pinned memory back";
  detail::enter(operation);
  detail::try_for(1ms, [] { return detail::pinned_shelves().release_idle().cached_blocks == 0; });
  detail::wait_after_trim(operation);
}

}  // namespace runnel::inline RUNNEL_ABI
