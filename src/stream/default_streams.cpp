// SPDX-License-Identifier: Apache-2.0
/// The default streams of devices and of threads.
#include <runnel/detail/access.hpp>
#include <runnel/stream.hpp>

#include "base/check.hpp"
#include "base/sync.hpp"
#include "base/thread_end.hpp"
#include "device/device_call.hpp"
#include "slot/operations.hpp"
#include "slot/point.hpp"
#include "slot/retire.hpp"
#include "slot/slots.hpp"

#include <array>
#include <atomic>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

constinit sync::Atomic<Slot*> default_slots[max_devices];

void make_default(Slot& slot, native::stream handle) noexcept {
  slot.handle = handle;
  slot.owned = false;
  slot.blocking.store(Blocking::yes, std::memory_order_relaxed);
  slot.is_default = true;
}

// The slots of the calling thread's own default streams. A pointer, because a user's thread_local
// object may use a default stream in its destructor, after a thread_local table would have been
// destroyed. A new table is then made while the thread ends.
using ThreadDefaults = std::array<Slot*, max_devices>;
thread_local constinit ThreadDefaults* thread_defaults = nullptr;

void emit_default_made(const Slot& slot) noexcept { emit_made(slot, "get a default stream"); }

void end_thread_defaults(void*) {
  ThreadDefaults* const ended = std::exchange(thread_defaults, nullptr);
  for (Slot* slot : *ended)
    if (slot != nullptr) retire_slot(slot);
  delete ended;
}

ThreadDefaults& this_threads_defaults() {
  if (thread_defaults != nullptr) return *thread_defaults;
  // The first runtime call makes the runtime create its state for the thread. The runtime registers
  // the destruction of that state before at_thread_end() below registers ours, so our views end
  // first. The runtime must not be called again while the thread ends.
  static thread_local constinit bool is_runtime_called = false;
  if (!std::exchange(is_runtime_called, true)) {
    int priority = 0;
    succeeded_or_forget(backend::stream_priority(backend::per_thread_default_stream(), priority));
  }
  thread_defaults = new ThreadDefaults{};
  at_thread_end(end_thread_defaults, nullptr);
  return *thread_defaults;
}

}  // namespace

StreamRef default_stream_of(int device) {
  sync::Atomic<Slot*>& entry = default_slots[device];
  Slot* slot = entry.load(std::memory_order_acquire);
  if (slot == nullptr) {
    FreshSlot fresh = take_slot(device);
    make_default(*fresh, backend::default_stream());
    publish_default(fresh.get());
    if (entry.compare_exchange_strong(slot, fresh.get(), std::memory_order_acq_rel)) {
      slot = fresh.release();
      emit_default_made(*slot);
    }
  }
  return Access::ref(slot, slot->id.load(std::memory_order_relaxed));
}

void mark_own_default_streams() noexcept {
  if (thread_defaults == nullptr) return;
  for (Slot* slot : *thread_defaults)
    if (slot != nullptr) mark_if_asked(*slot);
}

}  // namespace detail

using namespace detail;

StreamRef StreamRef::per_thread_default(Device device) {
  const DeviceCall call{device.ordinal(), "get the thread's default stream"};
  Slot*& slot = this_threads_defaults()[static_cast<size_t>(call.device())];
  if (slot == nullptr) {
    slot = take_slot(call.device()).release();
    make_default(*slot, backend::per_thread_default_stream());
    slot->thread = this_thread_id();
    publish_default(slot);
    emit_default_made(*slot);
  }
  return {slot, slot->id.load(std::memory_order_relaxed)};
}

StreamRef Device::default_stream() const {
  const DeviceCall call{ordinal_, "get a default stream"};
  return default_stream_of(call.device());
}

}  // namespace runnel::inline RUNNEL_ABI
