// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_point.hpp"

#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "stream/idle.hpp"

#include <runnel/detail/backend.hpp>

#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

namespace {

/// Ends an open point of the slot.
void end_point(Slot& slot) noexcept {
  EventRef end{};
  bool is_free = false;
  {
    const std::lock_guard lock{slot.lock};
    if (--slot.points > 0) return;
    end = std::move(slot.end.event);
    is_free = std::exchange(slot.waits_for_points, false);
  }
  if (is_free) free_waiting_slot(slot);
}

}  // namespace

StreamPoint::StreamPoint(StreamUse stream) noexcept {
  const std::lock_guard lock{stream.slot->lock};
  if (stream.slot->id.load(std::memory_order_relaxed) != stream.id) return;
  ++stream.slot->points;
  stream_ = stream;
}

StreamPoint StreamPoint::again() const noexcept {
  if (stream_.slot != nullptr) {
    const std::lock_guard lock{stream_.slot->lock};
    ++stream_.slot->points;
  }
  return adopt(stream_);
}

StreamPoint StreamPoint::adopt(StreamUse stream) noexcept {
  StreamPoint point;
  point.stream_ = stream;
  return point;
}

void StreamPoint::drop() noexcept {
  if (is_forked_child()) return;  // no lock may be taken
  if (!event_) end_point(*stream_.slot);
}

void StreamPoint::record() noexcept {
  if (event_ || mark_ != 0) return;
  const HeldStream stream{stream_};
  if (!stream) return;
  if (!stream.is_reachable()) {
    mark_ = request_mark(stream_);
    return;
  }
  event_ = stream.record(InCapture::never);
  if (event_) end_point(*stream_.slot);
}

HeldStream::HeldStream(StreamPoint& ending) noexcept : slot_{nullptr} {
  const StreamUse use = ending.stream();
  const std::lock_guard lock{use.slot->lock};
  if (use.slot->id.load(std::memory_order_relaxed) != use.id) return;
  use.slot->held.fetch_add(1, std::memory_order_relaxed);
  slot_ = use.slot;
  if (!is_reachable()) return;
  --slot_->points;
  static_cast<void>(ending.release());
}

Progress StreamPoint::poll() noexcept {
  record();
  if (event_) return poll_event(event_.get());
  if (has_ended(stream_)) return poll_end(*stream_.slot);
  if (mark_ == 0) return Progress::stalled;
  record_requested_mark(stream_);
  return poll_mark(stream_, mark_);
}

bool StreamPoint::is_over() const noexcept {
  return !event_ && has_ended(stream_) && own_call([&] { return poll_end(*stream_.slot); }) == Progress::complete;
}

bool StreamPoint::make_wait(native::stream stream, InCapture in_capture) const noexcept {
  EventRef event = event_.share();
  if (!event) {
    if (const HeldStream held{stream_}) {
      if (!held.is_reachable()) return false;
      event = held.record(in_capture);
      return event && succeeded_or_note_capture(backend::stream_wait_event(stream, event.get()));
    }
    StreamEnd end = end_of(*stream_.slot);
    if (end.progress == Progress::complete) return true;
    event = std::move(end.event);
  }
  return event && succeeded_or_note_capture(backend::stream_wait_event(stream, event.get()));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
