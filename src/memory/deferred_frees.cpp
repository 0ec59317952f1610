// SPDX-License-Identifier: Apache-2.0
#include "memory/deferred_frees.hpp"

#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/polling.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "memory/releaser.hpp"
#include "memory/resource_calls.hpp"
#include "stream/internal_streams.hpp"
#include "stream/slots.hpp"

#include <runnel/detail/backend.hpp>

#include <list>
#include <mutex>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct DeferredFrees {
  sync::Mutex lock;
  std::list<BlockFree> all;
};
DeferredFrees& deferred() { return never_destroyed<DeferredFrees>(); }

[[nodiscard]] FreeKind kind_of(const BlockFree& block) noexcept {
  return block.resource ? FreeKind::resource : FreeKind::device;
}
[[nodiscard]] sync::Atomic<std::size_t>& count_of(FreeKind kind) noexcept {
  return deferred_free_counts[static_cast<std::size_t>(kind)];
}

/// Deallocates the block to its resource, on one of the library's own streams. If there is no
/// memory for that, it uses the default stream, which always exists: see prepare_for_resource().
void give_back(const BlockFree& block) noexcept {
  const auto stream = [&] {
    try {
      if (const native::stream own = pick_internal_stream(block.device))
        return view_internal_stream(own, block.device);
    } catch (const std::bad_alloc&) {
    }
    return default_stream_of(block.device);
  };
  deallocate_to_resource(*block.resource, stream(), block.pointer, block.bytes);
}

/// Requires: no stream uses the memory. Without memory pools a thread of the library frees it,
/// because backend::free_device() waits for the device.
void free_unused(const BlockFree& block) noexcept {
  if (block.resource) return give_back(block);
  const native::stream own =
      has_memory_pools(block.device) ? pick_internal_stream(block.device) : nullptr;
  if (own == nullptr)
    return release_on_thread(
        native_release<void*, backend::free_device>(block.pointer, block.device));
  call_quietly(block.device, [&] { return backend::free_async(block.pointer, own); });
}

/// Moves all entries of the kind for which `is_moved(entry)` is true. Requires: both lists are
/// locked, or owned by the caller.
template <class Predicate>
void move_entries(std::list<BlockFree>& to, std::list<BlockFree>& from, FreeKind kind,
                  Predicate is_moved) noexcept {
  for (auto each = from.begin(); each != from.end();) {
    const auto found = each++;
    if (kind_of(*found) == kind && is_moved(*found)) to.splice(to.end(), from, found);
  }
}

/// Frees the entries of the kind for which `poll(entry)` returns `complete`, and removes, without
/// freeing, those for which it returns `unknown`. Returns whether there were any. Does nothing if
/// `lock` is not locked.
template <class Poll>
bool run_if(FreeKind kind, std::unique_lock<sync::Mutex> lock, Poll poll) noexcept {
  if (!lock) return false;
  std::list<BlockFree> complete;
  const auto is_over = [&](BlockFree& block) {
    const Progress progress = poll(block);
    if (progress == Progress::unknown) block.pointer = nullptr;
    return progress == Progress::complete || progress == Progress::unknown;
  };
  move_entries(complete, deferred().all, kind, is_over);
  for (std::size_t i = 0; i < complete.size(); ++i) count_down(count_of(kind));
  lock.unlock();
  for (const BlockFree& block : complete)
    if (block.pointer != nullptr) free_unused(block);
  return !complete.empty();
}

void run_complete(FreeKind kind, std::unique_lock<sync::Mutex> lock) noexcept {
  run_if(kind, std::move(lock), [](BlockFree& block) { return advance(block.others); });
}

}  // namespace

bool defer_free(BlockFree& block) noexcept try {
  std::list<StreamPoint> own(1);
  std::list<BlockFree> made(1);  // From here on nothing fails.
  own.front() = std::move(block.owner);
  block.others.splice(block.others.begin(), own);
  internal_call([&] {
    for (StreamPoint& point : block.others) point.record();
  });
  const FreeKind kind = kind_of(block);
  made.front() = std::move(block);
  const std::lock_guard lock{deferred().lock};
  deferred().all.splice(deferred().all.end(), made);
  count_up(count_of(kind));
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void run_complete_frees() noexcept {
  // Skips if another thread is processing the list.
  run_complete(FreeKind::device, std::unique_lock{deferred().lock, std::try_to_lock});
}

void run_complete_resource_frees() noexcept {
  if (!is_in_resource()) run_complete(FreeKind::resource, std::unique_lock{deferred().lock});
}

bool wait_for_deferred_free() noexcept {
  bool is_freed = false;
  block_until([&] {
    bool comes = false;
    is_freed = run_if(FreeKind::device, std::unique_lock{deferred().lock}, [&](BlockFree& block) {
      const Progress now = advance(block.others);
      comes = comes || now == Progress::pending;
      return now;
    });
    return is_freed || !comes;
  });
  return is_freed;
}

void run_all_frees() noexcept {
  if (any_capture_seen()) return;
  // Entries that another thread adds meanwhile may depend on work that the wait does not cover.
  std::list<BlockFree> taken;
  const auto move_all = [](std::list<BlockFree>& to, std::list<BlockFree>& from) {
    const std::lock_guard lock{deferred().lock};
    move_entries(to, from, FreeKind::device, [](const BlockFree&) { return true; });
  };
  move_all(taken, deferred().all);
  for (int i = 0; i < device_count(); ++i)
    if (!wait_for_device(i)) return move_all(deferred().all, taken);
  for (const BlockFree& block : taken) {
    count_down(count_of(FreeKind::device));
    free_unused(block);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
