// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_point.hpp"

#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "stream/event_pool.hpp"
#include "stream/idle.hpp"

#include <runnel/detail/backend.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

StreamPoint::StreamPoint(StreamUse stream) noexcept {
  if (begin_use(stream)) stream_ = stream;
}

StreamPoint StreamPoint::adopt(StreamUse stream) noexcept {
  StreamPoint point;
  point.stream_ = stream;
  return point;
}

void StreamPoint::drop() noexcept {
  if (is_forked_child()) return;  // no lock may be taken
  if (event_ != nullptr)
    return_event(event_, device_, {});
  else
    end_use(stream_);
}

void StreamPoint::record() noexcept {
  if (event_ != nullptr || mark_ != 0) return;
  const HeldStream stream{stream_};
  if (!stream) return;
  if (!stream.is_reachable()) {
    mark_ = request_mark(stream_);
    return;
  }
  event_ = stream.record(InCapture::never);
  if (event_ == nullptr) return;
  device_ = stream.device();
  end_use(stream_);
}

Progress StreamPoint::poll() noexcept {
  record();
  if (event_ != nullptr) return poll_event(event_);
  if (has_ended(stream_)) return poll_end(*stream_.slot);
  if (mark_ == 0) return Progress::stalled;
  record_requested_mark(stream_);
  return poll_mark(stream_, mark_);
}

bool StreamPoint::is_over() const noexcept {
  return event_ == nullptr && has_ended(stream_) && poll_end(*stream_.slot) == Progress::complete;
}

bool StreamPoint::make_wait(native::stream stream, InCapture in_capture) const noexcept {
  native::event event = event_;
  if (event == nullptr) {
    if (const HeldStream held{stream_}) {
      if (!held.is_reachable()) return false;
      event = held.record(in_capture);
      if (event == nullptr) return false;
      const bool waits = succeeded_or_note_capture(backend::stream_wait_event(stream, event));
      return_event(event, held.device(), {});
      return waits;
    }
    const StreamEnd end = end_of(*stream_.slot);
    if (end.progress == Progress::complete) return true;
    event = end.event;
  }
  return event != nullptr && succeeded_or_note_capture(backend::stream_wait_event(stream, event));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
