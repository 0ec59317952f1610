// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_point.hpp"

#include "base/process.hpp"
#include "base/sync.hpp"
#include "device/scoped_device.hpp"
#include "stream/event_node.hpp"
#include "stream/idle.hpp"

#include <mutex>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

namespace {

/// Whether a slot that waits is to be freed now. Requires: its lock is held.
[[nodiscard]] bool take_if_unneeded(Slot& slot) noexcept {
  return slot.points == 0 && slot.is_still_needed && slot.timeline.is_idle() &&
         std::exchange(slot.is_still_needed, false);
}

/// Releases the slot from an open point.
void end_point(Slot& slot) noexcept {
  EventRef end{};
  bool is_free = false;
  {
    const std::lock_guard lock{slot.lock};
    if (--slot.points > 0) return;
    end = std::move(slot.end.event);
    is_free = take_if_unneeded(slot);
  }
  if (is_free) free_waiting_slot(slot);
}

}  // namespace

bool has_points(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  return slot.points > 0;
}

bool may_reuse(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  slot.is_still_needed = slot.points > 0 || !slot.timeline.is_idle();
  return !slot.is_still_needed;
}

void free_if_waiting(Slot& slot) noexcept {
  bool is_free = false;
  {
    const std::lock_guard lock{slot.lock};
    is_free = take_if_unneeded(slot);
  }
  if (is_free) free_waiting_slot(slot);
}

StreamPoint::StreamPoint(StreamKey stream) noexcept {
  const std::lock_guard lock{stream.slot->lock};
  if (stream.slot->id.load(std::memory_order_relaxed) != stream.id) return;
  ++stream.slot->points;
  stream_ = stream;
}

StreamPoint StreamPoint::share() const noexcept {
  if (stream_.slot != nullptr) {
    const std::lock_guard lock{stream_.slot->lock};
    ++stream_.slot->points;
  }
  return adopt(stream_);
}

StreamPoint StreamPoint::adopt(StreamKey stream) noexcept {
  StreamPoint point;
  point.stream_ = stream;
  return point;
}

void StreamPoint::drop() noexcept {
  if (is_forked_child()) return;  // No lock may be taken.
  if (!event_) end_point(*stream_.slot);
}

void StreamPoint::record() noexcept {
  if (event_ || mark_ != 0) return;
  const HandleLock stream{stream_};
  if (!stream) return;
  if (!stream.is_reachable()) {
    mark_ = request_mark(stream_);
    return;
  }
  if (in_host_function) return;
  event_ = record_on(*stream_.slot, InCapture::never);
  if (event_) end_point(*stream_.slot);
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

HandleLock::HandleLock(StreamKey use) noexcept : slot_{nullptr} {
  const std::lock_guard lock{use.slot->lock};
  if (use.slot->id.load(std::memory_order_relaxed) != use.id) return;
  use.slot->handle_locks.fetch_add(1, std::memory_order_relaxed);
  slot_ = use.slot;
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

Progress StreamPoint::poll() noexcept {
  record();
  return look();
}

Progress StreamPoint::look() noexcept {
  if (event_) return poll_event(event_.get());
  if (has_ended(stream_)) return poll_end(*stream_.slot);
  if (mark_ == 0) return Progress::stalled;
  record_requested_mark(stream_);
  return poll_mark(stream_, mark_);
}

bool StreamPoint::is_over() const noexcept {
  return !event_ && has_ended(stream_) &&
         internal_call([&] { return poll_end(*stream_.slot); }) == Progress::complete;
}

bool StreamPoint::make_wait(native::stream stream, InCapture in_capture) const noexcept {
  EventRef event = event_.share();
  if (!event) {
    if (const HandleLock locked{stream_}) {
      if (!locked.is_reachable()) return false;
      event = record_on(*stream_.slot, in_capture);
    } else {
      StreamEnd end = end_of(*stream_.slot);
      if (end.progress == Progress::complete) return true;
      event = std::move(end.event);
    }
  }
  return event && succeeded_or_note_capture(backend::stream_wait_event(stream, event.get()));
}

std::uint64_t request_mark(StreamKey use) noexcept {
  const std::lock_guard lock{use.slot->lock};
  if (use.slot->id.load(std::memory_order_relaxed) == use.id)
    use.slot->mark_requested.store(true, std::memory_order_relaxed);
  return use.slot->marks + 1;
}

Progress poll_mark(StreamKey use, std::uint64_t number) noexcept {
  const HandleLock locked{use};
  if (!locked) return Progress::pending;  // The stream is ending.
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
  // The stream's own thread records the next mark once the pending one is complete.
  if (last < number) return progress == Progress::pending ? Progress::pending : Progress::stalled;
  if (progress != Progress::complete) return progress;
  const std::lock_guard lock{use.slot->lock};
  sync::happens_before(&use.slot->marks);
  use.slot->marks_complete = std::max(use.slot->marks_complete, last);
  return Progress::complete;
}

void record_mark(Slot& slot) noexcept {
  // Only this thread records marks. While the last mark is pending, the next one stays requested,
  // and is recorded later.
  EventRef mark = internal_call([&] {
    const bool is_complete = poll_mark(key_of(slot), slot.marks) == Progress::complete;
    return is_complete ? record_on(slot, InCapture::never) : EventRef{};
  });
  if (!mark) return;
  const std::lock_guard lock{slot.lock};
  std::swap(slot.mark, mark);  // The old one is destroyed after the lock is released.
  ++slot.marks;
  slot.mark_requested.store(false, std::memory_order_relaxed);
}

void record_requested_mark(StreamKey use) noexcept {
  const HandleLock locked{use};
  if (locked && locked.is_reachable() && is_mark_requested(*use.slot)) record_mark(*use.slot);
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

}}}  // namespace runnel::RUNNEL_ABI::detail
