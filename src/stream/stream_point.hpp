// SPDX-License-Identifier: Apache-2.0
/// "The stream has come so far": what memory, and whatever else streams work on, waits for before
/// it is freed or used for something else.
///
/// A point is open first: it stands for all that the stream is given until it is recorded. To make
/// one costs no runtime call. record() pins it to an event. A stream that ends leaves its last
/// event in its slot for the open points, and its slot is no other stream's before they are gone.
/// So nothing has to be allocated, and a point never outlives what it refers to.
///
/// On another thread's own default stream nothing can be recorded. record() requests a mark there:
/// the stream's thread records it the next time that it uses the library's memory, or waits for the
/// stream.
#pragma once

#include "base/announce.hpp"
#include "base/relaxed_capture.hpp"
#include "stream/capture.hpp"
#include "stream/uses.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

class StreamPoint;

/// Whether an event may be recorded on a stream that is being captured. `allowed` is only for an
/// event that the host never queries; streams of the same capture may wait for it.
enum class InCapture { never, allowed };

/// In a capture an event would mark a node of the graph, and a query of the event would invalidate
/// the capture.
[[nodiscard]] inline bool can_record(const Slot& slot) noexcept {
  return capture_state(slot.handle) == CaptureState::none;
}
/// An event that marks all the stream's work so far; none if there was no event or it could not be
/// recorded.
[[nodiscard]] EventRef record_on(const Slot& slot, InCapture in_capture) noexcept;

/// Keeps every thread from destroying a stream's handle, for the time of some runtime calls.
class HeldStream {
 public:
  explicit HeldStream(StreamUse use) noexcept;
  /// The stream of an open point. If it has not ended and is reachable, the point is empty
  /// afterwards.
  explicit HeldStream(StreamPoint& ending) noexcept;
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() {
    if (slot_ != nullptr) slot_->held.fetch_sub(1, std::memory_order_release);
  }
  /// False if the stream had ended already.
  [[nodiscard]] explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// False for another thread's own default stream: its handle means something else here, so that
  /// nothing can be recorded on it.
  [[nodiscard]] bool is_reachable() const noexcept {
    return slot_->thread == nullptr || slot_->thread == this_thread_id();
  }
  [[nodiscard]] native::stream handle() const noexcept { return slot_->handle; }
  [[nodiscard]] int device() const noexcept { return slot_->device; }
  [[nodiscard]] bool is_default() const noexcept { return slot_->is_default; }
  [[nodiscard]] EventRef record(InCapture in_capture) const noexcept {
    return record_on(*slot_, in_capture);
  }

 private:
  Slot* slot_;
};

class StreamPoint {
 public:
  StreamPoint() noexcept = default;
  /// An open point. Empty if the stream has ended.
  explicit StreamPoint(StreamUse stream) noexcept;
  StreamPoint(StreamPoint&& other) noexcept
      : stream_{std::exchange(other.stream_, {})},
        event_{std::move(other.event_)},
        mark_{other.mark_} {}
  StreamPoint& operator=(StreamPoint&& other) noexcept {
    StreamPoint taken{std::move(other)};
    swap(*this, taken);
    return *this;
  }
  friend void swap(StreamPoint& a, StreamPoint& b) noexcept {
    std::swap(a.stream_, b.stream_);
    std::swap(a.event_, b.event_);
    std::swap(a.mark_, b.mark_);
  }
  ~StreamPoint() {
    if (stream_.slot != nullptr) drop();
  }

  /// Another open point of the same stream. Requires: this one is open or empty.
  [[nodiscard]] StreamPoint again() const noexcept;

  /// False for an empty point.
  [[nodiscard]] explicit operator bool() const noexcept { return stream_.slot != nullptr; }
  /// The point's stream, which may have ended.
  [[nodiscard]] StreamUse stream() const noexcept { return stream_; }

  /// Records an event for an open point, or requests a mark. Does nothing if that cannot be done
  /// now: in a capture, and after a failure.
  void record() noexcept;
  /// How far the work is. Records the point first.
  [[nodiscard]] Progress poll() noexcept;
  /// Whether the stream has ended, and all its work is complete. Records nothing.
  [[nodiscard]] bool is_over() const noexcept;
  /// Makes later work of the stream wait for the point. False if that cannot be done.
  [[nodiscard]] bool make_wait(native::stream stream, InCapture in_capture) const noexcept;

  /// @{ The hold of an open point as a plain value, for a class that the library's sources do not
  /// see the whole of. release() leaves the point empty; adopt() takes what it has returned.
  [[nodiscard]] StreamUse release() noexcept { return std::exchange(stream_, {}); }
  [[nodiscard]] static StreamPoint adopt(StreamUse stream) noexcept;
  ///@}

 private:
  void drop() noexcept;

  StreamUse stream_{};
  EventRef event_{};
  std::uint64_t mark_ = 0;  // instead of an event: see request_mark()
};

// Only its own thread can record on a thread's default stream. Another thread that has to know when
// the stream's present work is complete requests a mark. The stream's thread records it the next
// time that it uses pinned memory or waits for the stream.
/// Requests a mark behind the present work; returns its number.
[[nodiscard]] std::uint64_t request_mark(StreamUse use) noexcept;
/// How far the stream is with the work before that mark.
[[nodiscard]] Progress poll_mark(StreamUse use, std::uint64_t number) noexcept;
/// Requires: the stream's own thread calls, and the stream's device is current.
void record_mark(Slot& slot) noexcept;
/// The same for a mark that was requested, if the calling thread is the stream's own.
void record_requested_mark(StreamUse use) noexcept;
/// Makes a mark without an event: all work of the stream so far is complete. Requires: the stream's
/// own thread calls.
void complete_mark(Slot& slot) noexcept;

[[nodiscard]] inline bool is_mark_requested(const Slot& slot) noexcept {
  return slot.mark_requested.load(std::memory_order_relaxed);
}
/// As complete_mark(), if another thread has requested a mark.
inline void complete_requested_mark(Slot& slot) noexcept {
  if (is_mark_requested(slot)) [[unlikely]]
    complete_mark(slot);
}

///@{ What a stream that ended has left in its slot. Requires: a point holds the slot.
[[nodiscard]] StreamEnd end_of(Slot& slot) noexcept;
/// Queries the event, and notes the answer.
[[nodiscard]] Progress poll_end(Slot& slot) noexcept;
///@}

/// How far the points of a container are: the worst of their answers. Removes those that are
/// complete or unknown.
template <class Points>
[[nodiscard]] Progress advance(Points& points) noexcept {
  const RelaxedCapture relaxed;
  Progress worst = Progress::complete;
  std::erase_if(points, [&](StreamPoint& point) {
    const Progress progress = point.poll();
    worst = std::max(worst, progress);
    return progress == Progress::complete || progress == Progress::unknown;
  });
  sync::happens_before(&points);
  sync::happens_after(&points);  // other threads may have removed some of them
  return worst;
}

/// Removes the points of streams that have ended and whose work is complete, from what outlives
/// many streams.
template <class Points>
void forget_over(Points& points) noexcept {
  const RelaxedCapture relaxed;
  std::erase_if(points, [](const StreamPoint& point) { return point.is_over(); });
  sync::happens_before(&points);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
