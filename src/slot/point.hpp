// SPDX-License-Identifier: Apache-2.0
/// A Point is a position in a stream. Memory, and other things that streams use, wait for points
/// before they are freed or reused. It owns nothing, and can be copied.
///
/// A point is first open: it stands for all work that the stream receives until record(). Creating
/// it makes no runtime call. record() gives it the number of a mark (timeline/timeline.hpp); where
/// nothing can be recorded now, that of the next mark. A stream of which points were made takes a
/// last number when it ends. Its slot is not used again before all numbers are complete.
///
/// Where a thread asks for a number, the next call of the library on that stream records the mark.
/// Other threads only look whether the stream is idle: a record would wait for room in a full
/// stream.
#pragma once

#include "backend.hpp"
#include "base/announce.hpp"
#include "base/not_copied.hpp"
#include "base/relaxed_capture.hpp"
#include "slot/capture.hpp"
#include "slot/device_waits.hpp"
#include "slot/slots.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether an event may be recorded on a stream that is being captured. `allowed` is only for
/// events that the host never queries. Streams of the same capture may wait for such an event.
enum class InCapture { never, allowed };

/// In a capture, the event would become a node of the graph, and a query of the event would
/// invalidate the capture.
inline bool can_record(const Slot& slot) noexcept {
  return capture_state(slot.handle) == CaptureState::none;
}
/// An event after all the stream's work so far. Empty if no event could be created or recorded.
[[nodiscard]] EventRef record_on(const Slot& slot, InCapture in_capture) noexcept;

/// Blocks the destruction of a stream's handle in this scope. Keep the scope short: a few runtime
/// calls. A stream that a host function has ended has its handle until the service thread ends it.
class HandleLock : NotCopied {
 public:
  explicit HandleLock(StreamKey use) noexcept : HandleLock{*use.slot, use.id} {}
  /// For the stream that uses the slot now.
  explicit HandleLock(Slot& slot) noexcept : HandleLock{slot, {}} {}
  ~HandleLock() { unlock(); }
  void unlock() noexcept {
    if (Slot* const slot = std::exchange(slot_, nullptr))
      slot->handle_locks.fetch_sub(1, std::memory_order_release);
  }
  /// False if there is no handle any more.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// As above, and false for another thread's default stream: its handle would mean the calling
  /// thread's stream, so nothing can be recorded on it.
  bool is_usable() const noexcept { return slot_ != nullptr && is_reachable(*slot_); }
  const Slot* operator->() const noexcept { return slot_; }

 private:
  HandleLock(Slot& slot, std::optional<uint64_t> id) noexcept;

  Slot* slot_ = nullptr;
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

/// Records a mark on the stream. If that is not possible (in a host function, in a capture, on
/// another thread's default stream, after a failure), reserves the number of the next mark. Returns
/// the number. Requires: the stream's handle is locked.
uint64_t mark_or_ask(Slot& slot) noexcept;
/// Records the mark whose number is reserved, unless the stream has ended or is another thread's.
/// For threads that use the stream.
void mark_what_was_asked(Slot& slot) noexcept;
inline void mark_if_asked(Slot& slot) noexcept {
  if (slot.timeline.is_asked()) [[unlikely]]
    mark_what_was_asked(slot);
}
/// The same for the calling thread's own default streams, which no other thread reaches.
void mark_own_default_streams() noexcept;
/// Completes what was asked for if the stream is idle, for a thread that does not use the stream.
/// It records nothing there, since a record waits for room in a stream that is full. If the handle
/// may mean another stream by now, only a mark can tell.
void settle_if_asked(Slot& slot) noexcept;
/// Whether the stream is known to be idle. False if it is being captured, and if its handle may
/// mean another stream by now. Requires: the stream's device is current if its handle needs that.
bool is_known_idle(const Slot& slot) noexcept;
/// The calling thread has found all work of the stream complete. It says so for other threads, if
/// the stream is its own default stream, on which only it can record.
inline void complete_if_asked(Slot& slot) noexcept {
  if (slot.thread != nullptr && slot.timeline.is_asked()) [[unlikely]]
    slot.timeline.complete_all();
}
/// Asks the runtime how far the stream is. Completions that are due go to the service thread.
void advance(Slot& slot) noexcept;

class Point {
 public:
  Point() noexcept = default;
  /// An open point. Empty if the stream has ended.
  explicit Point(StreamKey stream) noexcept;
  /// An open point of a stream that may have ended since another one was made.
  [[nodiscard]] static Point of(StreamKey stream) noexcept {
    return {stream.slot, stream.id | open_bit};
  }

  /// False for an empty point.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  Slot* slot() const noexcept { return slot_; }
  /// The stream of an open point, which may have ended.
  StreamKey stream() const noexcept {
    return is_open() ? StreamKey{slot_, position_ & ~open_bit} : StreamKey{};
  }

  /// Gives an open point a number.
  void record() noexcept;
  /// Records, also what was asked for before, and returns the progress of the work before the
  /// point, for which it asks the runtime.
  [[nodiscard]] Progress poll() noexcept;
  /// The progress as far as it is known, or with a question to the runtime. Records nothing.
  [[nodiscard]] Progress progress() const noexcept;
  [[nodiscard]] Progress ask() const noexcept;
  /// Whether the stream has ended and all its work is known to be complete.
  [[nodiscard]] bool is_over() const noexcept;
  /// Lets the timeline be watched until the point is complete or has failed. Returns whether it
  /// was not watched.
  [[nodiscard]] bool watch() const noexcept {
    const Point known = resolved();
    return !known.is_open() && slot_->timeline.watch_to(known.position_);
  }
  /// Makes later work of the stream wait for the point. False if that is not possible.
  [[nodiscard]] bool make_wait(native::stream stream, InCapture in_capture) const noexcept;

 private:
  static constexpr uint64_t open_bit = uint64_t{1} << 63;
  Point(Slot* slot, uint64_t position) noexcept : slot_{slot}, position_{position} {}
  bool is_open() const noexcept { return (position_ & open_bit) != 0; }
  /// The same point with the number of the stream's end, if the stream has ended.
  [[nodiscard]] Point resolved() const noexcept;

  Slot* slot_ = nullptr;
  uint64_t position_ = 0;  // a number, or the id of the stream with the open bit
};

/// An open point. @throws errc::invalid_handle if the stream has ended
Point live_point(StreamRef stream);
/// Waits until the work of a stream that has ended is complete. Waits for the device if no event
/// can show that. Returns false if that wait fails or would break a capture. Requires: the point is
/// open.
bool is_passed(Point& ended, const char* waiting);

/// Removes the points of streams that have ended and whose work is complete. For containers that
/// outlive many streams.
template <class Points>
void erase_ended_points(Points& points) noexcept {
  std::erase_if(points, [](const Point& point) { return point.is_over(); });
  sync::happens_before(&points);
}

/// Adds an open point of the stream, unless there is one. False if the stream has ended. The
/// container may outlive many streams: it then loses the points of those whose work is complete.
template <class Points>
bool add_open_point(Points& points, StreamKey stream) {
  if (std::ranges::any_of(points, [&](const Point& each) { return each.stream() == stream; }))
    return true;
  if (points.size() >= 16 && std::has_single_bit(points.size())) erase_ended_points(points);
  const Point made{stream};
  if (made) points.push_back(made);
  return static_cast<bool>(made);
}

/// The progress of all points in a container: the worst of them. Removes the points that are
/// complete. Requests the waits for devices that are needed.
template <class Points>
[[nodiscard]] Progress advance(Points& points) noexcept {
  const RelaxedCapture relaxed;
  Progress worst = Progress::complete;
  std::erase_if(points, [&](Point& point) {
    const Progress progress = point.poll();
    worst = std::max(worst, progress);
    if (progress == Progress::unknown) request_device_wait(point.slot()->device);
    return progress == Progress::complete;
  });
  sync::happens_before(&points);
  sync::happens_after(&points);  // Other threads may have removed some of them.
  return worst;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
