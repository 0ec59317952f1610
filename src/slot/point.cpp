// SPDX-License-Identifier: Apache-2.0
#include "slot/point.hpp"

#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "capture/open_captures.hpp"
#include "device/scoped_device.hpp"
#include "slot/device_waits.hpp"
#include "slot/idle.hpp"
#include "slot/reclaimer.hpp"
#include "timeline/event_node.hpp"

#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {

Point::Point(StreamKey stream) noexcept {
  if (stream.slot == nullptr) return;  // The Stream was moved from.
  const std::lock_guard lock{stream.slot->lock};
  if (stream.slot->id.load(std::memory_order_relaxed) != stream.id) return;
  stream.slot->has_points = true;
  *this = of(stream);
}

Point live_point(StreamRef stream) {
  const Point made{key_of(stream)};
  if (!made) throw_dead_stream(stream.id());
  return made;
}

void Point::record() noexcept {
  if (slot_ == nullptr || !is_open()) return;
  if (const HandleLock locked{stream()}) position_ = mark_or_ask(*slot_);
}

Point Point::resolved() const noexcept {
  if (!is_open()) return *this;
  const std::lock_guard lock{slot_->lock};
  const uint64_t id = slot_->id.load(std::memory_order_relaxed);
  if (id == stream().id) return *this;
  return {slot_, id == 0 ? slot_->timeline.last() : 0};  // Else another stream uses the slot.
}

uint64_t mark_or_ask(Slot& slot) noexcept {
  if (in_host_function || !is_reachable(slot)) return slot.timeline.ask();
  if (slot.timeline.is_long()) internal_call([&] { advance(slot); });
  {
    Timeline::Recorder recorder{slot.timeline, std::try_to_lock};
    if (EventRef event = recorder ? record_on(slot, InCapture::never) : EventRef{})
      return recorder.mark(std::move(event), is_surely_same(slot));
  }
  return slot.timeline.ask();
}

void mark_what_was_asked(Slot& slot) noexcept {
  if (const HandleLock locked{slot}; locked.is_usable()) internal_call([&] { mark_or_ask(slot); });
}

bool is_known_idle(const Slot& slot) noexcept {
  if (!is_surely_same(slot)) return false;
  std::unique_lock<sync::Mutex> no_captures;
  if (is_legacy_default(slot) && !(no_captures = block_captures())) return false;
  return internal_call([&] {
    const StreamQueryLock beside_captures{slot};
    return beside_captures.capture_state() == CaptureState::none &&
           succeeded_or_forget(beside_captures.query());
  });
}

void settle_if_asked(Slot& slot) noexcept {
  if (!slot.timeline.is_asked()) return;
  const HandleLock locked{slot};
  if (!locked.is_usable()) return;
  // The calling thread's own default stream, or a handle that may mean another.
  if (slot.thread != nullptr || !is_surely_same(slot)) return mark_what_was_asked(slot);
  const ScopedDevice on{slot.device, ScopedDevice::no_throw, slot.is_default};
  Timeline::Recorder recorder{slot.timeline, std::try_to_lock};
  if (recorder && is_known_idle(slot)) recorder.complete();
}

EventRef record_on(const Slot& slot, InCapture in_capture) noexcept {
  const ScopedDevice on{slot.device, ScopedDevice::no_throw, slot.is_default};
  // Otherwise the event could become a part of a capture that another thread begins meanwhile.
  const StreamQueryLock beside_captures{slot, in_capture == InCapture::never};
  if (in_capture == InCapture::never && !can_record(slot)) return {};
  EventRef event = try_take_event(slot.device, {}, "mark a point of a stream");
  if (event && !succeeded_or_forget(backend::event_record(event.get(), slot.handle))) event = {};
  return event;
}

HandleLock::HandleLock(Slot& slot, std::optional<uint64_t> id) noexcept {
  const std::lock_guard lock{slot.lock};
  const uint64_t present =
      slot.end_is_queued ? slot.ended_id : slot.id.load(std::memory_order_relaxed);
  if (present == 0 || id.value_or(present) != present) return;
  slot.handle_locks.fetch_add(1, std::memory_order_relaxed);
  slot_ = &slot;
}

KeptHandle::KeptHandle(Slot& slot) noexcept : slot_{slot} {
  const std::lock_guard lock{slot_.lock};
  ++slot_.kept_handles;
}

KeptHandle::~KeptHandle() {
  if (is_forked_child()) return;  // No lock may be taken.
  {
    const std::lock_guard lock{slot_.lock};
    if (--slot_.kept_handles > 0 || !std::exchange(slot_.end_is_deferred, false)) return;
  }
  run_later(slot_);
}

Progress Point::progress() const noexcept {
  if (slot_ == nullptr) return Progress::complete;
  const Point known = resolved();
  return known.is_open() ? Progress::stalled : slot_->timeline.progress(known.position_);
}

Progress Point::ask() const noexcept {
  const Progress found = progress();
  if (found != Progress::pending) return found;
  advance(*slot_);
  return progress();
}

Progress Point::poll() noexcept {
  record();
  const Progress found = ask();
  if (found != Progress::stalled) return found;
  settle_if_asked(*slot_);
  return ask();
}

bool Point::is_over() const noexcept {
  return is_open() && has_ended(stream()) && progress() == Progress::complete;
}

bool Point::make_wait(native::stream stream, InCapture in_capture) const noexcept {
  const Point known = resolved();
  const Progress found = known.progress();
  if (found == Progress::complete) return true;
  EventRef event{};
  if (found == Progress::pending && !known.is_open())
    event = slot_->timeline.event_at(known.position_);
  if (found == Progress::stalled) {
    const HandleLock locked{*slot_};
    if (locked.is_usable()) event = record_on(*slot_, in_capture);
  }
  // Without an event the work may have completed meanwhile.
  return event ? succeeded_or_note_capture(backend::stream_wait_event(stream, event.get()))
               : known.progress() == Progress::complete;
}

bool is_passed(Point& ended, const char* waiting) {
  const StreamKey stream = ended.stream();
  const int device = stream.slot->device;
  const ScopedWait wait{waiting, {.device = device}};
  Progress progress{};
  block_until([&] {
    progress = internal_call([&] { return ended.poll(); });
    // On the service thread, which takes the next steps, nothing will change what is stalled.
    return progress != Progress::pending && (progress != Progress::stalled || is_service_thread());
  });
  if (progress != Progress::complete && wait_for_device(device) != Progress::complete) return false;
  emit([&] { return Operation{.kind = OperationKind::known_complete, .stream = stream}; });
  return true;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
