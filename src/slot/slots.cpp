// SPDX-License-Identifier: Apache-2.0
#include "slot/slots.hpp"

#include "base/announce.hpp"
#include "base/max_devices.hpp"
#include "base/not_copied.hpp"
#include "slot/device_waits.hpp"
#include "slot/handle_table.hpp"
#include "slot/operations.hpp"
#include "slot/point.hpp"
#include "slot/reclaimer.hpp"
#include "slot/retire.hpp"

#include <runnel/detail/access.hpp>

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

// Slots are never freed, and never used for another device: a stale view may still read its slot.
struct SlotBatch {
  std::array<Slot, slots_in_batch> slots{};
  SlotBatch* next = nullptr;
};

// Protects the following variables and parts of each slot. No foreign code is called under it.
constinit SpinLock slots_lock;
constinit uint64_t next_id = 1;
constinit SlotBatch* batches = nullptr;
constinit Slot* free_slots[max_devices] = {};
/// Slots of ended streams that are not known to be complete, the oldest first.
constinit DeferredQueue waiting_slots[max_devices] = {};
constinit HandleTable table;

thread_local constinit char thread_mark = 0;

// Requires, for each function of this namespace: the lock is held.

void make_live(Slot& slot) noexcept {
  slot.is_in_use = true;
  slot.is_gone = false;
  slot.id.store(next_id++, std::memory_order_release);
}

[[nodiscard]] std::exception_ptr take_failure(Slot& slot) noexcept {
  slot.has_failure.store(false, std::memory_order_relaxed);
  if (slot.failure != nullptr) sync::happens_after(&slot.failure);
  return std::exchange(slot.failure, nullptr);
}

void make_free(Slot& slot) noexcept {
  slot.is_in_use = false;
  if (slot.timeline.is_idle())
    slot.next_free = std::exchange(free_slots[slot.device], &slot);
  else
    waiting_slots[slot.device].push(slot);
}

/// Retires the slots of orphaned views after the lock is released.
class OrphanedSlots : NotCopied {
 public:
  ~OrphanedSlots() {
    while (first_ != nullptr) retire_slot(std::exchange(first_, first_->next_free), true);
  }
  void add(Slot& slot) noexcept { slot.next_free = std::exchange(first_, &slot); }

 private:
  Slot* first_ = nullptr;
};

/// Removes the reference of the views. True if it was the last one.
bool drop_views(Slot& slot) noexcept {
  return std::exchange(slot.has_views, false) &&
         slot.references.fetch_sub(1, std::memory_order_relaxed) == 1;
}

/// Removes a slot from the table, so that its handle does not find it.
void unlist(Slot& slot, OrphanedSlots& lost) noexcept {
  table.erase(slot);
  if (!slot.is_in_use || !drop_views(slot)) return;
  // Other code has destroyed the stream; its handle now belongs to another stream.
  slot.is_in_use = false;
  lost.add(slot);
}

void begin_stream(Slot& slot, const NativeStream& stream, bool owned) noexcept {
  slot.handle = stream.handle;
  slot.blocking.store(stream.blocking, std::memory_order_relaxed);
  slot.owned = owned;
  slot.references.store(1, std::memory_order_relaxed);
  table.insert(slot);
  make_live(slot);
}

/// Adds the reference that wrap_handle() promises to a live slot.
void add_reference(Slot& slot, Holder holder) noexcept {
  if (holder == Holder::views && (slot.owned || std::exchange(slot.has_views, true))) return;
  slot.owned = slot.owned || holder == Holder::owner;
  slot.references.fetch_add(1, std::memory_order_relaxed);
}

/// Finds the live slot of a handle. Removes slots with another device or kind: they belong to
/// earlier native streams, which other code has destroyed.
Slot* find_slot(const NativeStream& stream, OrphanedSlots& lost) noexcept {
  Slot* found = nullptr;
  table.for_each(stream.handle, [&](Slot& each) {
    // The last Stream of such a slot ended while the process was exiting.
    const bool is_over = each.is_in_use && each.id.load(std::memory_order_relaxed) == 0;
    const Blocking known = blocking_of(each);
    const bool is_same_kind = known == stream.blocking || known == Blocking::unknown ||
                              stream.blocking == Blocking::unknown;
    if (is_over || each.device != stream.device || !is_same_kind) {
      unlist(each, lost);
      return;
    }
    if (known == Blocking::unknown) each.blocking.store(stream.blocking, std::memory_order_relaxed);
    found = &each;
  });
  return found;
}

}  // namespace

const void* this_thread_id() noexcept { return &thread_mark; }

FreshSlot take_slot(int device) {
  Slot*& free = free_slots[device];
  {
    const std::lock_guard lock{slots_lock};
    if (free != nullptr) [[likely]]
      return FreshSlot{std::exchange(free, free->next_free)};
  }
  bool is_unknown = false;
  // Not in a host function: there a query fails, as if the work had failed.
  for (int looked_at = 0; looked_at < 2 && !in_host_function; ++looked_at) {
    FreshSlot waiting;
    {
      const std::lock_guard lock{slots_lock};
      waiting = FreshSlot{static_cast<Slot*>(waiting_slots[device].pop())};
    }
    if (waiting == nullptr) break;
    internal_call([&] { advance(*waiting); });
    if (waiting->timeline.is_idle()) return waiting;
    is_unknown |= waiting->timeline.progress(waiting->timeline.recorded()) == Progress::unknown;
  }
  if (is_unknown) request_device_wait(device);
  SlotBatch* const fresh = new SlotBatch;
  for (Slot& each : fresh->slots) each.device = device;
  const std::lock_guard lock{slots_lock};
  fresh->next = std::exchange(batches, fresh);
  for (size_t i = 1; i < fresh->slots.size(); ++i) make_free(fresh->slots[i]);
  return FreshSlot{&fresh->slots[0]};
}

void ReturnSlot::operator()(Slot* slot) const noexcept {
  const std::lock_guard lock{slots_lock};
  slot->is_default = false;
  slot->id.store(0, std::memory_order_relaxed);
  make_free(*slot);
}

void publish_default(Slot* slot) noexcept {
  const std::lock_guard lock{slots_lock};
  make_live(*slot);
}

void publish_created(Slot* slot, const NativeStream& stream) noexcept {
  OrphanedSlots lost;
  const std::lock_guard lock{slots_lock};
  table.for_each(stream.handle, [&](Slot& each) { unlist(each, lost); });
  begin_stream(*slot, stream, true);
}

Slot* wrap_handle(const NativeStream& stream, Holder holder, bool& is_new) {
  // A new slot is taken outside of the lock, and only if the handle has none.
  for (FreshSlot fresh;; fresh = take_slot(stream.device)) {
    OrphanedSlots lost;
    const std::lock_guard lock{slots_lock};
    Slot* const live = find_slot(stream, lost);
    is_new = live == nullptr;
    if (live != nullptr) {
      if (holder == Holder::owner && live->owned) return nullptr;
      add_reference(*live, holder);
      return live;
    }
    if (fresh == nullptr) continue;
    begin_stream(*fresh, stream, holder == Holder::owner);
    fresh->has_views = holder == Holder::views;
    return fresh.release();
  }
}

bool drop_reference(Slot& slot, bool owner) noexcept {
  const std::lock_guard lock{slots_lock};
  const bool is_last = slot.references.fetch_sub(1, std::memory_order_relaxed) == 1;
  if (!slot.is_in_use) {
    if (is_last && slot.is_gone) make_free(slot);
    return false;
  }
  if (!owner && (!is_last || slot.owned)) return false;
  slot.is_in_use = false;
  if (owner) drop_views(slot);
  // The runtime may soon reuse the handle for another stream.
  table.erase(slot);
  return true;
}

void disown(Slot& slot) noexcept {
  const std::lock_guard lock{slots_lock};
  slot.owned = false;
}

std::exception_ptr finish_slot(Slot& slot) noexcept {
  slot.wait_event = {};
  slot.is_default = false;
  slot.idle_at_end = false;
  // Attachments that could not be destroyed leak.
  slot.attachments.store(nullptr, std::memory_order_relaxed);
  slot.thread = nullptr;
  slot.part = nullptr;
  slot.name[0] = '\0';
  const std::lock_guard lock{slots_lock};
  slot.owned = false;
  std::exception_ptr uncollected = take_failure(slot);
  slot.is_gone = slot.references.load(std::memory_order_relaxed) > 0;
  if (!slot.is_gone) make_free(slot);
  return uncollected;
}

namespace {
/// New batches are added in front, and none is ever removed.
[[nodiscard]] SlotBatch* newest_batch() noexcept {
  const std::lock_guard lock{slots_lock};
  return batches;
}
}  // namespace

bool is_only_viewed(const Slot& slot) noexcept {
  const std::lock_guard lock{slots_lock};
  return slot.has_views && !slot.owned && slot.references.load(std::memory_order_relaxed) == 1;
}

SomeStreams next_streams(const void* last_batch) noexcept {
  SlotBatch* const batch =
      last_batch == nullptr ? newest_batch() : static_cast<const SlotBatch*>(last_batch)->next;
  SomeStreams found{.batch = batch};
  if (batch == nullptr) return found;
  const std::lock_guard lock{slots_lock};
  for (Slot& slot : batch->slots)
    if (const StreamKey key = key_of(slot); slot.is_in_use && key.id != 0)
      found.streams[found.count++] = key;
  return found;
}

std::vector<StreamKey> live_streams() {
  std::vector<StreamKey> found;
  for (SomeStreams some; (some = next_streams(some.batch)).batch != nullptr;)
    found.insert(found.end(), some.streams.data(), some.streams.data() + some.count);
  return found;
}

std::vector<AwaitedTimeline> begin_device_wait(int device) noexcept {
  std::vector<AwaitedTimeline> found;
  try {
    for (SlotBatch* batch = newest_batch(); batch != nullptr; batch = batch->next)
      for (Slot& slot : batch->slots)
        if (slot.device == device && !slot.timeline.is_idle()) {
          found.push_back({&slot, 0});
          found.back().number = slot.timeline.begin_wait();
        }
  } catch (const std::bad_alloc&) {
  }
  return found;
}

Slot& live_slot(StreamRef stream) {
  const StreamKey key = key_of(stream);
  if (!is_live(key.slot, key.id)) [[unlikely]]
    throw_dead_stream(key.id);
  return *key.slot;
}

void keep_failure(StreamSlot* base, uint64_t id, Failure failure) noexcept {
  Slot& slot = static_cast<Slot&>(*base);
  bool is_kept = false;
  {
    const std::lock_guard lock{slots_lock};
    is_kept = slot.id.load(std::memory_order_relaxed) == id;
    if (is_kept && slot.failure == nullptr) {
      slot.failure = failure.exception;
      sync::happens_before(&slot.failure);
      slot.failure_label = failure.label;
      slot.has_failure.store(true, std::memory_order_release);
    }
  }
  // Last: work that is submitted from now on finds the exception in the slot.
  reclaimer().note_failure(slot, id, failure);
  if (!is_kept) emit_lost_exception(id, failure.exception);
}

std::exception_ptr kept_failure(Slot& slot) noexcept {
  if (!slot.has_failure.load(std::memory_order_acquire)) [[likely]]
    return nullptr;
  const std::lock_guard lock{slots_lock};
  return slot.failure;
}

void deliver_failure(Slot& slot, std::optional<uint64_t> label) {
  if (!slot.has_failure.load(std::memory_order_acquire)) [[likely]]
    return;
  std::exception_ptr failure;
  {
    const std::lock_guard lock{slots_lock};
    if (!label || slot.failure_label == *label) failure = take_failure(slot);
  }
  if (failure != nullptr) std::rethrow_exception(std::move(failure));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
