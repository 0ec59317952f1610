// SPDX-License-Identifier: Apache-2.0
/// Which streams may still be at work on a piece of memory, also after they are gone. A use costs no runtime call; it is turned into an
/// event when the memory is given back, or when the stream ends, whichever comes first: a stream that ends while memory counts a use of
/// it leaves one event behind, recorded after its last work.
#pragma once

#include "stream/slots.hpp"

#include <runnel/detail/backend.hpp>

#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

struct StreamUse {
  Slot* slot;
  std::uint64_t id;
  friend bool operator==(const StreamUse&, const StreamUse&) noexcept = default;
};

/// Counts a use; false if the stream is gone. Each one needs its end_use().
[[nodiscard]] bool begin_use(StreamUse use) noexcept;
void end_use(StreamUse use) noexcept;

/// Whether an event may be recorded on a stream that is being captured: only one that nobody asks about, other streams of the capture
/// apart.
enum class InCapture { never, allowed };

/// Keeps a stream's handle from being destroyed, by whichever thread, during some runtime calls.
class HeldStream {
 public:
  enum class Use { stays, ends };
  /// `ends`: if the stream is still there, this does what end_use() would.
  explicit HeldStream(StreamUse use, Use then = Use::stays) noexcept;
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() {
    if (slot_ != nullptr) slot_->held.fetch_sub(1, std::memory_order_release);
  }
  /// False if the stream was gone already.
  [[nodiscard]] explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// Another thread's own default stream has no handle here: nothing can be recorded on it.
  [[nodiscard]] bool is_reachable() const noexcept { return slot_->thread == nullptr || slot_->thread == this_thread_mark(); }
  [[nodiscard]] native::stream handle() const noexcept { return slot_->handle; }
  [[nodiscard]] int device() const noexcept { return slot_->device; }
  [[nodiscard]] bool is_default() const noexcept { return slot_->is_default; }
  /// An event of the pool that marks all its work so far; null where there was none to get or it could not be recorded.
  [[nodiscard]] native::event record(InCapture in_capture) const noexcept;

 private:
  Slot* slot_;
};

// Only its own thread can record on a thread's default stream. Another thread that has to know when the stream has passed its present work
// asks for a mark; the stream's thread makes it the next time that it uses pinned memory or waits for the stream.
/// Asks for a mark behind the present work; returns its number.
[[nodiscard]] std::uint64_t want_mark(StreamUse use) noexcept;
/// Whether the stream has passed that mark; false also if it was not made yet.
[[nodiscard]] bool has_passed_mark(StreamUse use, std::uint64_t number) noexcept;
/// Requires: the stream's own thread calls, and the stream's device is current.
void make_mark(Slot& slot) noexcept;
/// All work of the stream so far has finished. Requires: the stream's own thread calls.
void pass_mark(Slot& slot) noexcept;

/// What a stream that ended left behind for a use of it.
struct Remainder {
  enum class State {
    open,      ///< it is about to record its event
    recorded,  ///< `event` marks its end; valid until end_use()
    passed,    ///< it has finished
    lost,      ///< nothing could be recorded, so nobody will know when it finishes
  } state;
  native::event event{};
};
[[nodiscard]] Remainder remainder_of(StreamUse use) noexcept;
/// Asks the runtime whether the event has happened, and remembers it.
[[nodiscard]] Remainder::State poll_remainder(StreamUse use) noexcept;

/// Ends all views of a slot, leaves events for the uses of its stream, destroys what is attached, destroys the stream if the slot owns
/// it, frees the slot. In a host function all but the first wait until a thread outside comes by.
void retire_slot(Slot* slot) noexcept;
/// The later part of it.
void finish_retiring(Slot& slot, std::uint64_t id) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
