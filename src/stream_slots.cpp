// SPDX-License-Identifier: Apache-2.0
#include "stream_slots.hpp"

#include "device_table.hpp"
#include "event_pool.hpp"
#include "process.hpp"
#include "stream_uses.hpp"

#include <runnel/detail/driver.hpp>

#include <array>
#include <memory>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

constinit std::atomic<std::uint64_t> next_id{1};

constinit std::mutex free_mutex;
constinit Slot* free_list = nullptr;  // slots are never given back to the heap: a stale view may still look

constinit std::atomic<Slot*> default_slots[max_devices];

void make_default(Slot& slot, int device, native::stream handle) noexcept {
  slot.handle = handle;
  slot.device = device;
  slot.owned = false;
  slot.blocking = true;
  slot.is_default = true;
}

/// The calling thread's views of its own default streams; they end with the thread.
struct ThreadDefaults {
  std::array<Slot*, max_devices> slots{};
  ~ThreadDefaults() {
    for (Slot* slot : slots)
      if (slot != nullptr) retire_slot(slot);
  }
};

thread_local constinit char thread_mark = 0;

}  // namespace

const void* this_thread_mark() noexcept { return &thread_mark; }

Slot* take_slot() {
  const std::lock_guard lock{free_mutex};
  if (free_list == nullptr) {
    constexpr int batch = 32;
    Slot* const slots = new Slot[batch];
    for (int i = 0; i < batch; ++i) slots[i].next_free = std::exchange(free_list, &slots[i]);
  }
  return std::exchange(free_list, free_list->next_free);
}

std::uint64_t publish_slot(Slot* slot) noexcept {
  const std::uint64_t id = next_id.fetch_add(1, std::memory_order_relaxed);
  slot->id.store(id, std::memory_order_release);
  return id;
}

void free_slot(Slot* slot) noexcept {
  slot->id.store(0, std::memory_order_release);
  if (const native::event event = std::exchange(slot->wait_event, {})) return_event(event, slot->device, {});
  std::exception_ptr dropped;
  {
    const std::lock_guard lock{slot->failure_mutex};
    dropped = std::exchange(slot->failure, nullptr);
    slot->has_failure.store(false, std::memory_order_relaxed);
  }
  slot->is_default = false;
  slot->idle_at_end = false;
  slot->attachments.store(nullptr, std::memory_order_relaxed);  // where they could not be destroyed, they are left
  if (const native::event mark = std::exchange(slot->mark, {})) return_event(mark, slot->device, {});
  slot->mark_wanted.store(false, std::memory_order_relaxed);
  slot->marks = slot->marks_passed = 0;
  slot->thread = nullptr;
  slot->owned = false;
  slot->name[0] = '\0';
  const std::lock_guard lock{free_mutex};
  slot->next_free = std::exchange(free_list, slot);
}

Slot& live_slot(StreamRef stream) {
  StreamSlot* const slot = Access::slot(stream);
  if (!is_live(slot, stream.id())) [[unlikely]]
    throw_dead_stream(stream.id());
  return static_cast<Slot&>(*slot);
}

StreamRef default_stream_of(int device) {
  std::atomic<Slot*>& place = default_slots[device];
  Slot* slot = place.load(std::memory_order_acquire);
  if (slot == nullptr) {
    Slot* const fresh = take_slot();
    make_default(*fresh, device, driver::default_stream());
    publish_slot(fresh);
    if (place.compare_exchange_strong(slot, fresh, std::memory_order_acq_rel))
      slot = fresh;
    else
      free_slot(fresh);
  }
  return Access::ref(slot, slot->id.load(std::memory_order_relaxed));
}

void keep_failure(StreamSlot* base, std::uint64_t id, std::exception_ptr failure, std::uint64_t label) noexcept {
  Slot& slot = static_cast<Slot&>(*base);
  const std::lock_guard lock{slot.failure_mutex};
  if (slot.id.load(std::memory_order_relaxed) != id || slot.failure != nullptr) return;
  slot.failure = std::move(failure);
  slot.failure_label = label;
  slot.has_failure.store(true, std::memory_order_release);
}

void deliver_failure(Slot& slot) {
  if (!slot.has_failure.load(std::memory_order_acquire)) [[likely]]
    return;
  std::exception_ptr failure;
  {
    const std::lock_guard lock{slot.failure_mutex};
    failure = std::exchange(slot.failure, nullptr);
    slot.has_failure.store(false, std::memory_order_relaxed);
  }
  if (failure != nullptr) std::rethrow_exception(std::move(failure));
}

void deliver_failure_of(Slot& slot, std::uint64_t label) {
  if (!slot.has_failure.load(std::memory_order_acquire)) [[likely]]
    return;
  {
    const std::lock_guard lock{slot.failure_mutex};
    if (slot.failure_label != label) return;
  }
  deliver_failure(slot);
}

}  // namespace detail

StreamRef StreamRef::per_thread_default(Device device) {
  constexpr const char* operation = "get the thread's default stream";
  detail::enter(operation);
  detail::require_device(device.ordinal(), operation);
  // The runtime makes what it keeps for the thread first, and so ends it after ours has told the streams' ends.
  thread_local const auto mine = [] {
    int priority = 0;
    const driver::status s = driver::stream_priority(driver::per_thread_default_stream(), priority);
    if (s != driver::ok) driver::forget_error(s);
    return std::make_unique<detail::ThreadDefaults>();
  }();
  detail::Slot*& slot = mine->slots[static_cast<std::size_t>(device.ordinal())];
  if (slot == nullptr) {
    detail::Slot* const fresh = detail::take_slot();
    detail::make_default(*fresh, device.ordinal(), driver::per_thread_default_stream());
    fresh->thread = detail::this_thread_mark();
    detail::publish_slot(fresh);
    slot = fresh;
  }
  return {slot, slot->id.load(std::memory_order_relaxed)};
}

}  // namespace runnel::inline RUNNEL_ABI
