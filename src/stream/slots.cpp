// SPDX-License-Identifier: Apache-2.0
#include "stream/slots.hpp"

#include "base/announce.hpp"
#include "base/spin_lock.hpp"
#include "stream/handle_table.hpp"
#include "stream/uses.hpp"
#include "stream/watcher.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

// Slots are never given back to the heap: a stale view may still read its slot.
struct SlotBatch {
  std::array<Slot, 32> slots{};
  SlotBatch* next = nullptr;
};

/// The slots that rest, each in one place. The newest replaces the oldest, so that handles which other code destroys, unseen by the
/// library, do not pile up.
struct RestingPlaces {
  struct Place {
    Slot* slot;
    std::uint64_t ticket;
  };
  std::array<Place, 256> places{};
  std::uint64_t next_ticket = 0;
};

constinit SpinLock slots_lock;  // guards the following variables and parts of each slot; nothing foreign is called while it is held
constinit std::uint64_t next_id = 1;
constinit SlotBatch* batches = nullptr;
constinit Slot* free_list = nullptr;
constinit HandleTable table;
constinit RestingPlaces resting;

thread_local constinit char thread_mark = 0;

// Requires, for each function of this namespace: the lock is held.

void make_live(Slot& slot) noexcept {
  const std::uint64_t id = next_id++;
  if (slot.first_id == Slot::none) slot.first_id = id;  // a slot that rested keeps the first one
  slot.state = SlotState::live;
  slot.id.store(id, std::memory_order_release);
}

[[nodiscard]] std::exception_ptr take_failure(Slot& slot) noexcept {
  slot.has_failure.store(false, std::memory_order_relaxed);
  if (slot.failure != nullptr) sync::happens_after(&slot.failure);
  return std::exchange(slot.failure, nullptr);
}

void put_failure(Slot& slot, std::exception_ptr failure, std::uint64_t label) noexcept {
  slot.failure = std::move(failure);
  sync::happens_before(&slot.failure);
  slot.failure_label = label;
  slot.has_failure.store(true, std::memory_order_release);
}

void make_free(Slot& slot) noexcept {
  slot.first_id = Slot::none;
  slot.state = SlotState::unused;
  if (is_free_of_points(slot)) slot.next_free = std::exchange(free_list, &slot);
}

/// Slots that end or become free once the lock is released: one may keep an exception, whose destructor may call anything.
class Forgotten {
 public:
  Forgotten() = default;
  Forgotten(const Forgotten&) = delete;
  Forgotten& operator=(const Forgotten&) = delete;
  ~Forgotten() {
    while (views_ != nullptr) retire_lost_slot(std::exchange(views_, views_->next_free));
    while (first_ != nullptr) give_back_slot(std::exchange(first_, first_->next_free));
  }
  void add(Slot& slot) noexcept { slot.next_free = std::exchange(first_, &slot); }
  void add_view(Slot& slot) noexcept { slot.next_free = std::exchange(views_, &slot); }

 private:
  Slot* first_ = nullptr;
  Slot* views_ = nullptr;
};

/// Removes the views' reference. True if it was the last one.
bool drop_views(Slot& slot) noexcept {
  return std::exchange(slot.viewed, false) && slot.references.fetch_sub(1, std::memory_order_relaxed) == 1;
}

/// Removes a slot from the table, so that it is no longer found by its handle.
void unlist(Slot& slot, Forgotten& forgotten) noexcept {
  table.erase(slot);
  if (slot.state == SlotState::live && drop_views(slot)) {  // other code has destroyed its stream, whose handle is another stream's now
    slot.state = SlotState::ending;
    return forgotten.add_view(slot);
  }
  if (slot.state != SlotState::resting) return;
  slot.state = SlotState::unused;
  forgotten.add(slot);
}

void rest(Slot& slot, Forgotten& forgotten) noexcept {
  slot.state = SlotState::resting;
  slot.resting_ticket = resting.next_ticket++;
  RestingPlaces::Place& place = resting.places[slot.resting_ticket % resting.places.size()];
  const bool is_taken = place.slot != nullptr && place.slot->state == SlotState::resting && place.slot->resting_ticket == place.ticket;
  if (is_taken) unlist(*place.slot, forgotten);
  place = {&slot, slot.resting_ticket};
}

void begin_stream(Slot& slot, const NativeStream& stream, bool owned) noexcept {
  slot.handle = stream.handle;
  slot.device = stream.device;
  slot.blocking = stream.blocking;
  slot.owned = owned;
  slot.handle_is_known.store(true, __ATOMIC_RELAXED);
  slot.ahead.disturb();
  slot.references.store(1, std::memory_order_relaxed);
  if (!slot.listed) table.insert(slot);
  make_live(slot);
}

/// Moves an exception that an earlier slot of the handle keeps to the slot that is live now.
void inherit_failure(Slot& heir) noexcept {
  table.for_each(heir.handle, [&](Slot& each) {
    if (&each != &heir && each.failure != nullptr && heir.failure == nullptr) put_failure(heir, take_failure(each), each.failure_label);
  });
}

/// Adds what wrap_handle() promises to a live slot.
void add_reference(Slot& slot, Wrap wrap) noexcept {
  if (wrap == Wrap::view && (slot.owned || std::exchange(slot.viewed, true))) return;
  slot.owned = slot.owned || wrap == Wrap::take;
  slot.references.fetch_add(1, std::memory_order_relaxed);
}

struct FoundSlots {
  Slot* live = nullptr;
  Slot* resting = nullptr;
};
/// Finds the slots of a handle. A slot of another device or kind belongs to an earlier native stream, which other code destroyed: it is
/// removed.
[[nodiscard]] FoundSlots find_slots(const NativeStream& stream, Forgotten& forgotten) noexcept {
  FoundSlots found;
  table.for_each(stream.handle, [&](Slot& each) {
    // A live slot without an id lost its last Stream while the process was exiting.
    const bool is_over = each.state == SlotState::live && each.id.load(std::memory_order_relaxed) == 0;
    if (is_over || each.device != stream.device || each.blocking != stream.blocking)
      unlist(each, forgotten);
    else if (each.state == SlotState::live)
      found.live = &each;
    else if (each.state == SlotState::resting && !has_points(each))
      found.resting = &each;
  });
  return found;
}

}  // namespace

const void* this_thread_id() noexcept { return &thread_mark; }

Slot* take_slot() {
  {
    const std::lock_guard lock{slots_lock};
    if (free_list != nullptr) [[likely]]
      return std::exchange(free_list, free_list->next_free);
  }
  SlotBatch* const fresh = new SlotBatch;
  const std::lock_guard lock{slots_lock};
  fresh->next = std::exchange(batches, fresh);
  for (std::size_t i = 1; i < fresh->slots.size(); ++i) make_free(fresh->slots[i]);
  return &fresh->slots[0];
}

void give_back_slot(Slot* slot) noexcept {
  slot->id.store(0, std::memory_order_release);
  std::exception_ptr dropped;
  const std::lock_guard lock{slots_lock};
  dropped = take_failure(*slot);
  make_free(*slot);
}

void free_waiting_slot(Slot& slot) noexcept {
  const std::lock_guard lock{slots_lock};
  slot.next_free = std::exchange(free_list, &slot);
}

void publish_default(Slot* slot) noexcept {
  const std::lock_guard lock{slots_lock};
  make_live(*slot);
}

void publish_created(Slot* slot, const NativeStream& stream) noexcept {
  Forgotten forgotten;
  const std::lock_guard lock{slots_lock};
  table.for_each(stream.handle, [&](Slot& each) { unlist(each, forgotten); });
  begin_stream(*slot, stream, true);
  slot->handle_is_known.store(false, __ATOMIC_RELAXED);
}

Wrapped wrap_handle(Slot*& slot, const NativeStream& stream, Wrap wrap) noexcept {
  Forgotten forgotten;
  const std::lock_guard lock{slots_lock};
  const FoundSlots found = find_slots(stream, forgotten);
  const bool take = wrap == Wrap::take;
  if (found.live != nullptr) {
    if (take && found.live->owned) return Wrapped::has_owner;
    add_reference(*found.live, wrap);
    slot = found.live;
    return Wrapped::joined;
  }
  if (found.resting == nullptr && slot == nullptr) return Wrapped::needs_slot;
  const bool uses_given = found.resting == nullptr;
  if (!uses_given) slot = found.resting;
  begin_stream(*slot, stream, take);
  slot->viewed = wrap == Wrap::view;
  inherit_failure(*slot);
  return uses_given ? Wrapped::published : Wrapped::revived;
}

bool drop_reference(Slot& slot, bool owner) noexcept {
  std::exception_ptr dropped;
  Forgotten forgotten;
  const std::lock_guard lock{slots_lock};
  const bool is_last = slot.references.fetch_sub(1, std::memory_order_relaxed) == 1;
  if (slot.state != SlotState::live) {
    if (is_last && slot.state == SlotState::ended) {
      dropped = take_failure(slot);
      make_free(slot);
    }
    return false;
  }
  if (!owner && (!is_last || slot.owned)) return false;
  slot.state = SlotState::ending;
  if (owner) {
    // The native stream ends, and the runtime may soon give its handle to another one.
    slot.first_id = Slot::none;
    drop_views(slot);
    table.for_each(slot.handle, [&](Slot& each) { unlist(each, forgotten); });
  }
  return true;
}

void disown(Slot& slot) noexcept {
  const std::lock_guard lock{slots_lock};
  slot.owned = false;
}

void finish_slot(Slot& slot) noexcept {
  slot.wait_event = {};
  slot.is_default = false;
  slot.idle_at_end = false;
  slot.attachments.store(nullptr, std::memory_order_relaxed);  // attachments that could not be destroyed are leaked
  slot.mark = {};
  slot.mark_requested.store(false, std::memory_order_relaxed);
  slot.marks = slot.marks_complete = 0;
  slot.thread = nullptr;
  slot.part = nullptr;
  slot.name[0] = '\0';
  std::exception_ptr dropped;
  Forgotten forgotten;
  const std::lock_guard lock{slots_lock};
  slot.owned = false;
  if (slot.listed) return rest(slot, forgotten);
  dropped = take_failure(slot);
  if (slot.references.load(std::memory_order_relaxed) > 0)
    slot.state = SlotState::ended;
  else
    make_free(slot);
}

std::vector<LiveStream> live_streams() {
  std::vector<LiveStream> found;
  const auto for_each_batch = [](auto&& call) {
    const std::lock_guard lock{slots_lock};
    for (SlotBatch* batch = batches; batch != nullptr; batch = batch->next) call(*batch);
  };
  std::size_t most = 0;
  for_each_batch([&](SlotBatch& batch) { most += batch.slots.size(); });
  found.reserve(most);  // nothing is allocated while the lock is held
  for_each_batch([&](SlotBatch& batch) {
    for (Slot& slot : batch.slots) {
      const std::uint64_t id = slot.id.load(std::memory_order_relaxed);
      if (slot.state == SlotState::live && id != 0 && found.size() < most) found.push_back({&slot, id, slot.owned});
    }
  });
  return found;
}

Slot& live_slot(StreamRef stream) {
  StreamSlot* const slot = Access::slot(stream);
  if (!is_live(slot, stream.id())) [[unlikely]]
    throw_dead_stream(stream.id());
  return static_cast<Slot&>(*slot);
}

namespace {

/// Returns who inherits from the stream with that id: its slot, or another slot of the same handle.
Heirs keep_first(Slot& slot, std::uint64_t id, const Failure& failure) noexcept {
  const std::lock_guard lock{slots_lock};
  if (id < slot.first_id) return {};
  Slot* keeper = &slot;
  if (slot.state != SlotState::live)
    table.for_each(slot.handle, [&](Slot& each) {
      if (each.state == SlotState::live) keeper = &each;
    });
  if (keeper->failure == nullptr) put_failure(*keeper, failure.exception, failure.label);
  return {keeper, std::max(id + 1, keeper->first_id)};
}

}  // namespace

void keep_failure(StreamSlot* slot, std::uint64_t id, Failure failure) noexcept {
  const Heirs heirs = keep_first(static_cast<Slot&>(*slot), id, failure);
  watcher().note_failure(id, heirs, failure);  // last: what is submitted from now on finds the exception in the slot
}

void forget_failures(Slot& slot) noexcept {
  std::exception_ptr dropped;  // destroyed after the lock is released
  const std::lock_guard lock{slots_lock};
  dropped = take_failure(slot);
  slot.first_id = slot.id.load(std::memory_order_relaxed);
}

std::exception_ptr kept_failure(Slot& slot) noexcept {
  if (!slot.has_failure.load(std::memory_order_acquire)) [[likely]]
    return nullptr;
  const std::lock_guard lock{slots_lock};
  return slot.failure;
}

void deliver_failure(Slot& slot) {
  if (!slot.has_failure.load(std::memory_order_acquire)) [[likely]]
    return;
  std::exception_ptr failure;
  {
    const std::lock_guard lock{slots_lock};
    failure = take_failure(slot);
  }
  if (failure != nullptr) std::rethrow_exception(std::move(failure));
}

void deliver_failure_of(Slot& slot, std::uint64_t label) {
  if (!slot.has_failure.load(std::memory_order_acquire)) [[likely]]
    return;
  {
    const std::lock_guard lock{slots_lock};
    if (slot.failure_label != label) return;
  }
  deliver_failure(slot);
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
