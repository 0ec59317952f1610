// SPDX-License-Identifier: Apache-2.0
/// What StreamPoints (stream_point.hpp) and the ends of streams have in common: a stream is held, it marks its work, and it leaves its last
/// event in its slot if points hold that.
#pragma once

#include "stream/slots.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/detail/backend.hpp>

#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

struct StreamUse {
  Slot* slot = nullptr;
  std::uint64_t id = 0;
  friend bool operator==(const StreamUse&, const StreamUse&) noexcept = default;
};

[[nodiscard]] inline StreamUse use_of(StreamRef stream) noexcept { return {static_cast<Slot*>(Access::slot(stream)), stream.id()}; }

/// Whether points hold the slot.
[[nodiscard]] bool has_points(Slot& slot) noexcept;
/// Whether no points hold the slot. If some do, the last one calls free_waiting_slot().
[[nodiscard]] bool is_free_of_points(Slot& slot) noexcept;
/// Whether the stream has ended.
[[nodiscard]] inline bool has_ended(StreamUse use) noexcept { return use.slot->id.load(std::memory_order_acquire) != use.id; }

/// Whether an event may be recorded on a stream that is being captured. `allowed` is only for an event that the host never queries;
/// streams of the same capture may wait for it.
enum class InCapture { never, allowed };

class StreamPoint;

/// Keeps every thread from destroying a stream's handle, for the time of some runtime calls.
class HeldStream {
 public:
  explicit HeldStream(StreamUse use) noexcept;
  /// The stream of an open point. If it has not ended and is reachable, the point is empty afterwards.
  explicit HeldStream(StreamPoint& ending) noexcept;
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() {
    if (slot_ != nullptr) slot_->held.fetch_sub(1, std::memory_order_release);
  }
  /// False if the stream had ended already.
  [[nodiscard]] explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// False for another thread's own default stream: its handle means something else here, so that nothing can be recorded on it.
  [[nodiscard]] bool is_reachable() const noexcept { return slot_->thread == nullptr || slot_->thread == this_thread_id(); }
  [[nodiscard]] native::stream handle() const noexcept { return slot_->handle; }
  [[nodiscard]] int device() const noexcept { return slot_->device; }
  [[nodiscard]] bool is_default() const noexcept { return slot_->is_default; }
  /// An event that marks all the stream's work so far; none if there was no event or it could not be recorded.
  [[nodiscard]] EventRef record(InCapture in_capture) const noexcept;

 private:
  Slot* slot_;
};

// Only its own thread can record on a thread's default stream. Another thread that has to know when the stream's present work is complete
// requests a mark. The stream's thread records it the next time that it uses pinned memory or waits for the stream.
/// Requests a mark behind the present work; returns its number.
[[nodiscard]] std::uint64_t request_mark(StreamUse use) noexcept;
/// How far the stream is with the work before that mark.
[[nodiscard]] Progress poll_mark(StreamUse use, std::uint64_t number) noexcept;
/// Requires: the stream's own thread calls, and the stream's device is current.
void record_mark(Slot& slot) noexcept;
/// The same for a mark that was requested, if the calling thread is the stream's own.
void record_requested_mark(StreamUse use) noexcept;
/// Makes a mark without an event: all work of the stream so far is complete. Requires: the stream's own thread calls.
void complete_mark(Slot& slot) noexcept;

[[nodiscard]] inline bool is_mark_requested(const Slot& slot) noexcept { return slot.mark_requested.load(std::memory_order_relaxed); }
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

/// Ends all views of a slot, leaves an event for the uses of its stream, destroys the attachments, destroys the stream if the slot owns it,
/// and frees the slot or lets it rest. Inside a host function only the views end at once, and the end of a borrowed stream stays unknown;
/// the other steps are queued for the next call from another thread.
void retire_slot(Slot* slot) noexcept;
/// The same for a slot whose native stream other code has destroyed: nothing can be recorded on it, so that its end stays unknown.
void retire_lost_slot(Slot* slot) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
