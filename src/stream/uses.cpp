// SPDX-License-Identifier: Apache-2.0
#include "stream/uses.hpp"

#include "base/immortal.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/spin_lock.hpp"
#include "device/scoped_device.hpp"
#include "stream/event_pool.hpp"
#include "stream/host_functions.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <unordered_map>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Retired {
  Remainder remainder;
  int device;
  std::size_t uses;
};

// Never destroyed: memory is given back until the process ends.
struct Registry {
  SpinLock lock;  // also guards every slot's memory_uses, and the step from live to gone
  std::unordered_map<std::uint64_t, Retired> retired;
};
Registry& registry() { return immortal<Registry>(); }

/// From here on the stream is gone for everybody. Its uses keep an open entry, or none where there is no memory for one: lost.
std::uint64_t begin_retiring(Slot& slot) noexcept {
  const std::lock_guard lock{registry().lock};
  const std::uint64_t id = slot.id.exchange(0, std::memory_order_acq_rel);
  if (const std::size_t uses = std::exchange(slot.memory_uses, 0); uses > 0) {
    try {
      registry().retired.emplace(id, Retired{{Remainder::State::open, {}}, slot.device, uses});
    } catch (const std::bad_alloc&) {
    }
  }
  return id;
}

[[nodiscard]] bool leaves_uses(std::uint64_t id) noexcept {
  const std::lock_guard lock{registry().lock};
  return registry().retired.count(id) > 0;
}

void close(std::uint64_t id, Remainder remainder, int device) noexcept {
  {
    const std::lock_guard lock{registry().lock};
    const auto found = registry().retired.find(id);
    if (found != registry().retired.end()) {
      found->second.remainder = remainder;
      return;
    }
  }
  if (remainder.event != nullptr) return_event(remainder.event, device, {});  // the last use ended meanwhile
}

/// In a capture an event would mark a node of the graph, and asking for it would break the capture off.
[[nodiscard]] bool may_record(const Slot& slot) noexcept {
  bool capturing = false;
  return succeeded_or_forget(backend::stream_is_capturing(slot.handle, capturing)) && !capturing;
}

[[nodiscard]] native::event record_on(const Slot& slot, InCapture in_capture) noexcept {
  std::optional<ScopedDevice> on;
  if (slot.is_default) on.emplace(slot.device, ScopedDevice::no_throw);
  if (in_capture == InCapture::never && !may_record(slot)) return {};
  native::event event{};
  try {
    event = take_event(slot.device, {}, "mark the end of a stream's use of memory");
  } catch (...) {
    return {};
  }
  if (succeeded_or_forget(backend::event_record(event, slot.handle))) return event;
  return_event(event, slot.device, {});
  return {};
}

[[nodiscard]] bool is_passed(native::event event) noexcept { return succeeded_or_forget(backend::event_query(event)); }

[[nodiscard]] Remainder end_of(const Slot& slot) noexcept {
  if (slot.idle_at_end) return {Remainder::State::passed, {}};
  const native::event event = record_on(slot, InCapture::never);
  return {event != nullptr ? Remainder::State::recorded : Remainder::State::lost, event};
}

/// Leaves a host function that does nothing behind the work of a thread's default stream. Without one, CUDA's own handler of the thread's
/// end hangs where work is ahead and the stream has allocated memory, or waited for one that has: see docs/decisions.md.
void let_thread_end(const Slot& slot) noexcept {
  if (!may_record(slot)) return;
  const RelaxedCapture relaxed;
  backend::status s = backend::stream_query(slot.handle);
  if (backend::is_not_ready(s)) {
    backend::forget_error(s);
    s = backend::launch_host_func(
        slot.handle, [](void*) {}, nullptr);
  }
  succeeded_or_forget(s);
}

void destroy_attachments(Slot& slot) noexcept {
  Attachment* each = slot.attachments.exchange(nullptr, std::memory_order_acquire);
  while (each != nullptr) {
    Attachment* const next = each->next;
    each->destroy(each);
    each = next;
  }
}

}  // namespace

bool begin_use(StreamUse use) noexcept {
  const std::lock_guard lock{registry().lock};
  if (use.slot->id.load(std::memory_order_relaxed) != use.id) return false;
  ++use.slot->memory_uses;
  return true;
}

void end_use(StreamUse use) noexcept {
  Retired last{};
  {
    const std::lock_guard lock{registry().lock};
    if (use.slot->id.load(std::memory_order_relaxed) == use.id) {
      --use.slot->memory_uses;
      return;
    }
    const auto found = registry().retired.find(use.id);
    if (found == registry().retired.end() || --found->second.uses > 0) return;
    last = found->second;
    registry().retired.erase(found);
  }
  if (last.remainder.event != nullptr) return_event(last.remainder.event, last.device, {});
}

HeldStream::HeldStream(StreamUse use, Use then) noexcept : slot_{nullptr} {
  const std::lock_guard lock{registry().lock};
  if (use.slot->id.load(std::memory_order_relaxed) != use.id) return;
  use.slot->held.fetch_add(1, std::memory_order_relaxed);
  if (then == Use::ends) --use.slot->memory_uses;
  slot_ = use.slot;
}

native::event HeldStream::record(InCapture in_capture) const noexcept { return record_on(*slot_, in_capture); }

std::uint64_t want_mark(StreamUse use) noexcept {
  const std::lock_guard lock{registry().lock};
  if (use.slot->id.load(std::memory_order_relaxed) == use.id) use.slot->mark_wanted.store(true, std::memory_order_relaxed);
  return use.slot->marks + 1;
}

bool has_passed_mark(StreamUse use, std::uint64_t number) noexcept {
  const HeldStream held{use};
  if (!held) return false;
  native::event mark{};
  std::uint64_t made = 0;
  {
    const std::lock_guard lock{registry().lock};
    if (use.slot->marks_passed >= number) return true;
    mark = use.slot->mark;
    made = use.slot->marks;
  }
  if (made < number || !is_passed(mark)) return false;
  const std::lock_guard lock{registry().lock};
  use.slot->marks_passed = std::max(use.slot->marks_passed, made);
  return true;
}

void make_mark(Slot& slot) noexcept {
  const RelaxedCapture relaxed;
  // Only this thread makes marks. While the last one has not been passed, the next one is still wanted, and made later.
  if (!has_passed_mark({&slot, slot.id.load(std::memory_order_relaxed)}, slot.marks)) return;
  const native::event mark = record_on(slot, InCapture::never);
  if (mark == nullptr) return;
  native::event old{};
  {
    const std::lock_guard lock{registry().lock};
    old = std::exchange(slot.mark, mark);
    ++slot.marks;
    slot.mark_wanted.store(false, std::memory_order_relaxed);
  }
  if (old != nullptr) return_event(old, slot.device, {});
}
void pass_mark(Slot& slot) noexcept {
  const std::lock_guard lock{registry().lock};
  slot.marks_passed = ++slot.marks;
  slot.mark_wanted.store(false, std::memory_order_relaxed);
}

Remainder remainder_of(StreamUse use) noexcept {
  const std::lock_guard lock{registry().lock};
  const auto found = registry().retired.find(use.id);
  return found != registry().retired.end() ? found->second.remainder : Remainder{Remainder::State::lost, {}};
}

Remainder::State poll_remainder(StreamUse use) noexcept {
  const Remainder found = remainder_of(use);
  if (found.state != Remainder::State::recorded) return found.state;
  if (!is_passed(found.event)) return Remainder::State::recorded;
  const std::lock_guard lock{registry().lock};
  const auto entry = registry().retired.find(use.id);
  if (entry != registry().retired.end()) entry->second.remainder.state = Remainder::State::passed;
  return Remainder::State::passed;
}

void retire_slot(Slot* slot) noexcept {
  const Release mode = release_mode();
  if (mode == Release::never) return slot->id.store(0, std::memory_order_release);  // no lock: this may be a forked child
  const std::uint64_t id = begin_retiring(*slot);
  // A stream of other code may be destroyed before the postponed part is done.
  if (mode == Release::later && !slot->owned) close(id, {Remainder::State::lost, {}}, slot->device);
  if (mode == Release::now)
    finish_retiring(*slot, id);
  else
    postpone({[](const Postponed& item) noexcept { finish_retiring(*static_cast<Slot*>(item.handle), item.id); }, slot, slot->device, id});
}

void finish_retiring(Slot& slot, std::uint64_t id) noexcept {
  while (slot.held.load(std::memory_order_acquire) > 0) std::this_thread::yield();  // for a runtime call or two
  if (leaves_uses(id) && remainder_of({&slot, id}).state == Remainder::State::open) close(id, end_of(slot), slot.device);
  const ScopedDevice on{slot.device, ScopedDevice::no_throw};
  if (slot.thread == this_thread_mark()) let_thread_end(slot);
  destroy_attachments(slot);
  const native::stream handle = slot.handle;
  const bool owned = slot.owned;
  const int device = slot.device;
  finish_slot(slot);
  if (!owned) return;
  if (const backend::status s = backend::stream_destroy(handle); s != backend::ok) {
    backend::forget_error(s);
    if (backend::classify(s) != errc::device_lost || !backend::forgets_host_functions()) return;
    // Asked again: an error that comes up once leaves the functions in their streams.
    const backend::status again = backend::stream_query(backend::default_stream());
    if (again == backend::ok) return;
    backend::forget_error(again);
    if (backend::classify(again) == errc::device_lost) discard_host_functions(device);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
