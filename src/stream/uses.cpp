// SPDX-License-Identifier: Apache-2.0
#include "stream/uses.hpp"

#include "base/announce.hpp"
#include "base/immortal.hpp"
#include "base/lost_device.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "device/scoped_device.hpp"
#include "stream/capture.hpp"
#include "stream/event_pool.hpp"
#include "stream/graph_functions.hpp"
#include "stream/host_functions.hpp"
#include "stream/idle.hpp"
#include "stream/observed.hpp"

#include <runnel/detail/attachment.hpp>

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Retired {
  Remainder remainder;
  int device;
  std::size_t uses;
};

struct Registry {
  SpinLock lock;  // also guards every slot's memory_uses and marks, and the change of its id to 0
  std::unordered_map<std::uint64_t, Retired> retired;
};
Registry& registry() { return immortal<Registry>(); }

/// Ends all views of the stream. If the stream has uses, an open entry stays for them. If there is no memory for the entry, the uses are
/// lost: memory that waits for this stream is never reused.
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

void return_if_any(native::event event, int device) noexcept {
  if (event != nullptr) return_event(event, device, {});
}

/// Fills the open entry of a stream that ended.
void close(std::uint64_t id, Remainder remainder, int device) noexcept {
  {
    const std::lock_guard lock{registry().lock};
    const auto found = registry().retired.find(id);
    if (found != registry().retired.end()) {
      found->second.remainder = remainder;
      if (remainder.state == Remainder::State::complete) sync::happens_before(&found->second);
      return;
    }
  }
  return_if_any(remainder.event, device);  // the last use ended meanwhile
}

/// In a capture an event would mark a node of the graph, and a query of the event would invalidate the capture.
[[nodiscard]] bool can_record(const Slot& slot) noexcept { return capture_state(slot.handle) == CaptureState::none; }

[[nodiscard]] native::event record_on(const Slot& slot, InCapture in_capture) noexcept {
  std::optional<ScopedDevice> on;
  if (slot.is_default) on.emplace(slot.device, ScopedDevice::no_throw);
  if (in_capture == InCapture::never && !can_record(slot)) return {};
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

[[nodiscard]] Remainder record_end(const Slot& slot) noexcept {
  if (slot.idle_at_end) return {Remainder::State::complete, {}};
  const native::event event = record_on(slot, InCapture::never);
  return {event != nullptr ? Remainder::State::recorded : Remainder::State::lost, event};
}

/// Enqueues a host function that does nothing behind the unfinished work of a thread's default stream. Without it, CUDA's own handler of
/// the thread's end hangs if the stream has allocated memory, or waited for a stream that has: see docs/decisions/thread-ends-with-work.md.
void let_thread_end(const Slot& slot) noexcept {
  if (!can_record(slot)) return;
  const RelaxedCapture relaxed;
  const sync::Unseen unseen;  // the user has not asked
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

/// A runtime that loses a device may forget the functions that wait in its streams. `s` is why destroying a stream failed.
void discard_if_forgotten(backend::status s, int device) noexcept {
  backend::forget_error(s);
  if (backend::classify(s) != errc::device_lost || !backend::forgets_host_functions()) return;
  if (is_current_device_lost()) discard_host_functions(device);  // otherwise the functions are still in their streams
}

/// The later part of retire_slot().
void finish_retiring(Slot& slot, std::uint64_t id) noexcept {
  while (slot.held.load(std::memory_order_acquire) > 0) sync::yield();  // another thread holds it for a runtime call or two
  const ScopedDevice on{slot.device, ScopedDevice::no_throw};
  if (if_captures_met()) abandon_capture({&slot, id});  // first: in a capture nothing can be recorded
  if (leaves_uses(id) && remainder_of({&slot, id}).state == Remainder::State::open) close(id, record_end(slot), slot.device);
  if (slot.thread == this_thread_id()) let_thread_end(slot);
  destroy_attachments(slot);
  const native::stream handle = slot.handle;
  const bool owned = slot.owned;
  const int device = slot.device;
  finish_slot(slot);
  if (!owned) return;
  if (const backend::status s = backend::stream_destroy(handle); s != backend::ok) discard_if_forgotten(s, device);
}

}  // namespace

bool begin_use(StreamUse use) noexcept {
  const std::lock_guard lock{registry().lock};
  if (use.slot->id.load(std::memory_order_relaxed) != use.id) return false;
  ++use.slot->memory_uses;
  return true;
}

void repeat_use(StreamUse use) noexcept {
  const std::lock_guard lock{registry().lock};
  if (use.slot->id.load(std::memory_order_relaxed) == use.id)
    ++use.slot->memory_uses;
  else if (const auto found = registry().retired.find(use.id); found != registry().retired.end())
    ++found->second.uses;
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
  return_if_any(last.remainder.event, last.device);
}

HeldStream::HeldStream(StreamUse use, Use then) noexcept : slot_{nullptr} {
  const std::lock_guard lock{registry().lock};
  if (use.slot->id.load(std::memory_order_relaxed) != use.id) return;
  use.slot->held.fetch_add(1, std::memory_order_relaxed);
  slot_ = use.slot;
  if (then == Use::ends && is_reachable()) --use.slot->memory_uses;
}

native::event HeldStream::record(InCapture in_capture) const noexcept { return record_on(*slot_, in_capture); }

std::uint64_t request_mark(StreamUse use) noexcept {
  const std::lock_guard lock{registry().lock};
  if (use.slot->id.load(std::memory_order_relaxed) == use.id) use.slot->mark_requested.store(true, std::memory_order_relaxed);
  return use.slot->marks + 1;
}

bool is_mark_complete(StreamUse use, std::uint64_t number) noexcept {
  const HeldStream held{use};
  if (!held) return false;
  native::event mark{};
  std::uint64_t last = 0;
  {
    const std::lock_guard lock{registry().lock};
    if (use.slot->marks_complete >= number) {
      sync::happens_after(&use.slot->marks);
      return true;
    }
    mark = use.slot->mark;
    last = use.slot->marks;
  }
  if (last < number || !has_happened(mark)) return false;
  const std::lock_guard lock{registry().lock};
  sync::happens_before(&use.slot->marks);
  use.slot->marks_complete = std::max(use.slot->marks_complete, last);
  return true;
}

void record_mark(Slot& slot) noexcept {
  const RelaxedCapture relaxed;
  // Only this thread records marks. While the last mark is not complete, the next one stays requested, and is recorded later.
  if (!is_mark_complete({&slot, slot.id.load(std::memory_order_relaxed)}, slot.marks)) return;
  const native::event mark = record_on(slot, InCapture::never);
  if (mark == nullptr) return;
  native::event old{};
  {
    const std::lock_guard lock{registry().lock};
    old = std::exchange(slot.mark, mark);
    ++slot.marks;
    slot.mark_requested.store(false, std::memory_order_relaxed);
  }
  return_if_any(old, slot.device);
}

bool will_mark_be_known(StreamUse use, std::uint64_t number) noexcept {
  record_requested_mark(use);
  const HeldStream held{use};
  if (!held) return true;
  native::event mark{};
  std::uint64_t last = 0;
  {
    const std::lock_guard lock{registry().lock};
    if (use.slot->marks_complete >= number) return true;
    mark = use.slot->mark;
    last = use.slot->marks;
  }
  // Behind an earlier mark that is not complete, the stream's own thread records the next one.
  return mark != nullptr && will_be_known(mark) && (last >= number || !has_happened(mark));
}

void record_requested_mark(StreamUse use) noexcept {
  const HeldStream held{use};
  if (held && held.is_reachable() && is_mark_requested(*use.slot)) record_mark(*use.slot);
}

void complete_mark(Slot& slot) noexcept {
  const std::lock_guard lock{registry().lock};
  sync::happens_before(&slot.marks);
  slot.marks_complete = ++slot.marks;
  slot.mark_requested.store(false, std::memory_order_relaxed);
}

Remainder remainder_of(StreamUse use) noexcept {
  const std::lock_guard lock{registry().lock};
  const auto found = registry().retired.find(use.id);
  if (found == registry().retired.end()) return {Remainder::State::lost, {}};
  if (found->second.remainder.state == Remainder::State::complete) sync::happens_after(&found->second);
  return found->second.remainder;
}

Remainder::State poll_remainder(StreamUse use) noexcept {
  const Remainder found = remainder_of(use);
  if (found.state != Remainder::State::recorded) return found.state;
  if (!has_happened(found.event)) return Remainder::State::recorded;
  const std::lock_guard lock{registry().lock};
  const auto entry = registry().retired.find(use.id);
  if (entry != registry().retired.end()) {
    sync::happens_before(&entry->second);
    entry->second.remainder.state = Remainder::State::complete;
  }
  return Remainder::State::complete;
}

void retire_slot(Slot* slot) noexcept {
  const Release mode = release_mode();
  // This may be a forked child, where no lock may be taken.
  if (mode == Release::never) return slot->id.store(0, std::memory_order_release);
  const std::uint64_t id = begin_retiring(*slot);
  if (is_observed()) [[unlikely]]
    observe_stream_end(*slot, id);
  // Other code may destroy its stream before the postponed part runs, so that nothing could be recorded on it then.
  if (mode == Release::later && !slot->owned) close(id, {Remainder::State::lost, {}}, slot->device);
  if (mode == Release::now)
    finish_retiring(*slot, id);
  else
    postpone({[](const Postponed& item) noexcept { finish_retiring(*static_cast<Slot*>(item.handle), item.id); }, slot, slot->device, id});
}

void retire_lost_slot(Slot* slot) noexcept {
  const std::uint64_t id = begin_retiring(*slot);
  if (is_observed()) [[unlikely]]
    observe_stream_end(*slot, id);
  close(id, {Remainder::State::lost, {}}, slot->device);
  if (if_captures_met()) forget_capture({slot, id});
  finish_retiring(*slot, id);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
