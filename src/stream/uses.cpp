// SPDX-License-Identifier: Apache-2.0
#include "stream/uses.hpp"

#include "base/announce.hpp"
#include "base/lost_device.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/scoped_device.hpp"
#include "stream/capture.hpp"
#include "stream/event_node.hpp"
#include "stream/graph_functions.hpp"
#include "stream/host_functions.hpp"
#include "stream/idle.hpp"
#include "stream/operations.hpp"

#include <runnel/detail/attachment.hpp>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Ends all views of the stream.
std::uint64_t begin_retiring(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  slot.end = {};
  return slot.id.exchange(0, std::memory_order_acq_rel);
}

/// Leaves the stream's end to its points, if there are any.
void leave_end(Slot& slot, StreamEnd end) noexcept {
  const std::lock_guard lock{slot.lock};
  if (slot.points == 0) return;
  if (end.progress == Progress::complete) sync::happens_before(&slot.end);
  slot.end = std::move(end);
}

/// In a capture an event would mark a node of the graph, and a query of the event would invalidate the capture.
[[nodiscard]] bool can_record(const Slot& slot) noexcept { return capture_state(slot.handle) == CaptureState::none; }

[[nodiscard]] EventRef record_on(const Slot& slot, InCapture in_capture) noexcept {
  std::optional<ScopedDevice> on;
  if (slot.is_default) on.emplace(slot.device, ScopedDevice::no_throw);
  if (in_capture == InCapture::never && !can_record(slot)) return {};
  EventRef event = try_take_event(slot.device, {}, "mark a point of a stream");
  if (event && !succeeded_or_forget(backend::event_record(event.get(), slot.handle))) event = {};
  return event;
}

[[nodiscard]] StreamEnd record_end(const Slot& slot) noexcept {
  if (slot.idle_at_end) return {Progress::complete, {}};
  EventRef event = record_on(slot, InCapture::never);
  return {event ? Progress::pending : Progress::unknown, std::move(event)};
}

/// Enqueues a host function that does nothing behind the unfinished work of a thread's default stream. Without it, CUDA's own handler of
/// the thread's end hangs if the stream has allocated memory, or waited for a stream that has: see docs/decisions/thread-ends-with-work.md.
void let_thread_end(const Slot& slot) noexcept {
  if (!can_record(slot)) return;
  const sync::Unseen unseen;  // the user has not asked
  const backend::status s = own_call([&] { return backend::stream_query(slot.handle); });
  if (s == backend::ok) return;
  backend::forget_error(s);
  if (!backend::is_not_ready(s)) return;
  succeeded_or_forget(backend::launch_host_func(
      slot.handle, [](void*) {}, nullptr));
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
  if (has_points(slot) && end_of(slot).progress == Progress::pending) leave_end(slot, record_end(slot));
  if (slot.thread == this_thread_id()) let_thread_end(slot);
  destroy_attachments(slot);
  const native::stream handle = slot.handle;
  const bool owned = slot.owned;
  const int device = slot.device;
  emit_lost_exception(id, finish_slot(slot));
  if (!owned) return;
  if (const backend::status s = backend::stream_destroy(handle); s != backend::ok) discard_if_forgotten(s, device);
}

}  // namespace

bool has_points(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  return slot.points > 0;
}

bool is_free_of_points(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  slot.waits_for_points = slot.points > 0;
  return !slot.waits_for_points;
}

HeldStream::HeldStream(StreamUse use) noexcept : slot_{nullptr} {
  const std::lock_guard lock{use.slot->lock};
  if (use.slot->id.load(std::memory_order_relaxed) != use.id) return;
  use.slot->held.fetch_add(1, std::memory_order_relaxed);
  slot_ = use.slot;
}

EventRef HeldStream::record(InCapture in_capture) const noexcept { return record_on(*slot_, in_capture); }

std::uint64_t request_mark(StreamUse use) noexcept {
  const std::lock_guard lock{use.slot->lock};
  if (use.slot->id.load(std::memory_order_relaxed) == use.id) use.slot->mark_requested.store(true, std::memory_order_relaxed);
  return use.slot->marks + 1;
}

Progress poll_mark(StreamUse use, std::uint64_t number) noexcept {
  const HeldStream held{use};
  if (!held) return Progress::pending;  // the stream is ending
  EventRef mark{};
  std::uint64_t last = 0;
  {
    const std::lock_guard lock{use.slot->lock};
    if (use.slot->marks_complete >= number) {
      sync::happens_after(&use.slot->marks);
      return Progress::complete;
    }
    mark = use.slot->mark.share();
    last = use.slot->marks;
  }
  const Progress progress = mark ? poll_event(mark.get()) : Progress::stalled;
  // Behind an earlier mark that is not complete, the stream's own thread records the next one.
  if (last < number) return progress == Progress::pending ? Progress::pending : Progress::stalled;
  if (progress != Progress::complete) return progress;
  const std::lock_guard lock{use.slot->lock};
  sync::happens_before(&use.slot->marks);
  use.slot->marks_complete = std::max(use.slot->marks_complete, last);
  return Progress::complete;
}

void record_mark(Slot& slot) noexcept {
  // Only this thread records marks. While the last mark is not complete, the next one stays requested, and is recorded later.
  EventRef mark = own_call([&] {
    const bool is_complete = poll_mark({&slot, slot.id.load(std::memory_order_relaxed)}, slot.marks) == Progress::complete;
    return is_complete ? record_on(slot, InCapture::never) : EventRef{};
  });
  if (!mark) return;
  const std::lock_guard lock{slot.lock};
  std::swap(slot.mark, mark);  // the old one is destroyed behind the lock
  ++slot.marks;
  slot.mark_requested.store(false, std::memory_order_relaxed);
}

void record_requested_mark(StreamUse use) noexcept {
  const HeldStream held{use};
  if (held && held.is_reachable() && is_mark_requested(*use.slot)) record_mark(*use.slot);
}

void complete_mark(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  sync::happens_before(&slot.marks);
  slot.marks_complete = ++slot.marks;
  slot.mark_requested.store(false, std::memory_order_relaxed);
}

StreamEnd end_of(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  if (slot.end.progress == Progress::complete) sync::happens_after(&slot.end);
  return {slot.end.progress, slot.end.event.share()};
}

Progress poll_end(Slot& slot) noexcept {
  const StreamEnd end = end_of(slot);
  if (end.progress != Progress::pending || !end.event) return end.progress;
  const Progress progress = poll_event(end.event.get());
  if (progress != Progress::complete) return progress;
  const std::lock_guard lock{slot.lock};
  sync::happens_before(&slot.end);
  slot.end.progress = Progress::complete;
  return Progress::complete;
}

void retire_slot(Slot* slot) noexcept {
  const Release mode = release_mode();
  // This may be a forked child, where no lock may be taken.
  if (mode == Release::never) return slot->id.store(0, std::memory_order_release);
  const std::uint64_t id = begin_retiring(*slot);
  emit_ended(*slot, id);
  // Other code may destroy its stream before the postponed part runs, so that nothing could be recorded on it then.
  if (mode == Release::later && !slot->owned) leave_end(*slot, {Progress::unknown, {}});
  if (mode == Release::now)
    finish_retiring(*slot, id);
  else
    postpone({[](const Postponed& item) noexcept { finish_retiring(*static_cast<Slot*>(item.handle), item.id); }, slot, slot->device, id});
}

void retire_lost_slot(Slot* slot) noexcept {
  const std::uint64_t id = begin_retiring(*slot);
  emit_ended(*slot, id);
  leave_end(*slot, {Progress::unknown, {}});
  if (if_captures_met()) forget_capture({slot, id});
  finish_retiring(*slot, id);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
