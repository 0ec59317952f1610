// SPDX-License-Identifier: Apache-2.0
/// A StreamPoint is a position in a stream. Memory, and other things that streams use, wait for
/// points before they are freed or reused.
///
/// A point is first open: it stands for all work that the stream receives until record(). Creating
/// it makes no runtime call. record() binds the point to an event. When a stream ends, it stores
/// its last event in its slot for the open points, and the slot is not reused before they are gone.
/// So nothing must be allocated, and a point never outlives what it refers to.
///
/// Only the owning thread can record on a thread's default stream. On another thread, record()
/// requests a mark: the owning thread records it the next time that it uses the library's memory,
/// or waits for the stream.
#pragma once

#include "backend.hpp"
#include "base/announce.hpp"
#include "base/not_copied.hpp"
#include "base/relaxed_capture.hpp"
#include "stream/capture.hpp"
#include "stream/slots.hpp"

#include <algorithm>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// Whether an event may be recorded on a stream that is being captured. `allowed` is only for
/// events that the host never queries. Streams of the same capture may wait for such an event.
enum class InCapture { never, allowed };

/// In a capture, the event would become a node of the graph, and a query of the event would
/// invalidate the capture.
[[nodiscard]] inline bool can_record(const Slot& slot) noexcept {
  return capture_state(slot.handle) == CaptureState::none;
}
/// An event after all the stream's work so far. Empty if no event could be created or recorded.
[[nodiscard]] EventRef record_on(const Slot& slot, InCapture in_capture) noexcept;

/// Blocks the destruction of a stream's handle in this scope. Keep the scope short: a few runtime
/// calls.
class HandleLock : NotCopied {
 public:
  explicit HandleLock(StreamKey use) noexcept;
  ~HandleLock() { unlock(); }
  void unlock() noexcept {
    if (Slot* const slot = std::exchange(slot_, nullptr))
      slot->handle_locks.fetch_sub(1, std::memory_order_release);
  }
  /// False if the stream had already ended.
  [[nodiscard]] explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// False for another thread's default stream: its handle would mean the calling thread's stream,
  /// so nothing can be recorded on it.
  [[nodiscard]] bool is_reachable() const noexcept { return detail::is_reachable(*slot_); }
  [[nodiscard]] native::stream handle() const noexcept { return slot_->handle; }
  [[nodiscard]] int device() const noexcept { return slot_->device; }
  [[nodiscard]] bool is_default() const noexcept { return slot_->is_default; }

 private:
  Slot* slot_;
};

/// Keeps a stream's handle in this scope, in which the program's code runs. The end of the stream
/// does not wait for it: the last scope lets the service thread destroy the handle.
class KeptHandle : NotCopied {
 public:
  /// Requires: the stream is locked.
  explicit KeptHandle(Slot& slot) noexcept;
  ~KeptHandle();

 private:
  Slot& slot_;
};

class StreamPoint {
 public:
  StreamPoint() noexcept = default;
  /// An open point. Empty if the stream has ended.
  explicit StreamPoint(StreamKey stream) noexcept;
  /// A point that is bound to the event already, which is not empty.
  explicit StreamPoint(EventRef event) noexcept : event_{std::move(event)} {}
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
  [[nodiscard]] StreamPoint share() const noexcept;

  /// False for an empty point.
  [[nodiscard]] explicit operator bool() const noexcept {
    return stream_.slot != nullptr || event_;
  }
  /// The point's stream, which may have ended; empty for a point that was made of an event.
  [[nodiscard]] StreamKey stream() const noexcept { return stream_; }
  /// Requires: the point is not empty.
  [[nodiscard]] int device() const noexcept {
    return event_ ? event_->device : stream_.slot->device;
  }

  /// Records an event for an open point, or requests a mark. Does nothing if that is not possible
  /// now: in a host function, in a capture, or after a failure.
  void record() noexcept;
  /// Records the point if it is open, and returns the progress of the work before it.
  [[nodiscard]] Progress poll() noexcept;
  /// The same, but an open point of a live stream is stalled: recording could block.
  [[nodiscard]] Progress look() noexcept;
  /// Whether the stream has ended and all its work is complete. Records nothing.
  [[nodiscard]] bool is_over() const noexcept;
  /// Makes later work of the stream wait for the point. False if that is not possible.
  [[nodiscard]] bool make_wait(native::stream stream, InCapture in_capture) const noexcept;

  /// @{ Converts the ownership of an open point to a plain value and back, for classes whose full
  /// definition the library's sources cannot see. release() leaves the point empty; adopt() takes
  /// over what it returned.
  [[nodiscard]] StreamKey release() noexcept { return std::exchange(stream_, {}); }
  [[nodiscard]] static StreamPoint adopt(StreamKey stream) noexcept;
  ///@}

 private:
  void drop() noexcept;

  StreamKey stream_{};
  EventRef event_{};
  std::uint64_t mark_ = 0;  // instead of an event: see request_mark()
};

// Marks. Only the owning thread can record on its default stream. Another thread that must learn of
// the completion of the stream's present work requests a mark. The owning thread records it the
// next time that it uses pinned memory or waits for the stream.
//
// Requests a mark after the present work. Returns its number.
[[nodiscard]] std::uint64_t request_mark(StreamKey use) noexcept;
/// The progress of the work before the mark.
[[nodiscard]] Progress poll_mark(StreamKey use, std::uint64_t number) noexcept;
/// Records a mark. Requires: the calling thread owns the stream, and the stream's device is
/// current.
void record_mark(Slot& slot) noexcept;
/// Records a requested mark, if the calling thread owns the stream.
void record_requested_mark(StreamKey use) noexcept;
/// The same for the calling thread's own default streams, which no other thread reaches.
void record_marks_of_this_thread() noexcept;
/// Adds a mark without an event: all work of the stream so far is complete. Requires: the calling
/// thread owns the stream.
void complete_mark(Slot& slot) noexcept;

[[nodiscard]] inline bool is_mark_requested(const Slot& slot) noexcept {
  return slot.mark_requested.load(std::memory_order_relaxed);
}
/// As complete_mark(), if another thread has requested a mark.
inline void complete_requested_mark(Slot& slot) noexcept {
  if (is_mark_requested(slot)) [[unlikely]]
    complete_mark(slot);
}

/// Whether points own the slot.
[[nodiscard]] bool has_points(Slot& slot) noexcept;
/// Whether no points own the slot and no mark is pending. Otherwise the last one calls
/// free_waiting_slot().
[[nodiscard]] bool may_reuse(Slot& slot) noexcept;
/// To be called after the last mark.
void free_if_waiting(Slot& slot) noexcept;

/// @{ The end that a finished stream has stored in its slot. Requires: a point owns the slot.
[[nodiscard]] StreamEnd end_of(Slot& slot) noexcept;
/// Queries the event, and stores the result.
[[nodiscard]] Progress poll_end(Slot& slot) noexcept;
///@}

/// The progress of all points in a container: the worst of them. Removes the points that are
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
  sync::happens_after(&points);  // Other threads may have removed some of them.
  return worst;
}

/// Removes the points of streams that have ended and whose work is complete. For containers that
/// outlive many streams.
template <class Points>
void erase_ended_points(Points& points) noexcept {
  const RelaxedCapture relaxed;
  std::erase_if(points, [](const StreamPoint& point) { return point.is_over(); });
  sync::happens_before(&points);
}

}}}  // namespace runnel::RUNNEL_ABI::detail
