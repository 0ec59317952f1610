// SPDX-License-Identifier: Apache-2.0
/// What timed and untimed events have in common, which is everything but the measuring.
#pragma once

#include <runnel/stream.hpp>

#include <atomic>
#include <chrono>

namespace runnel::inline RUNNEL_ABI {

struct EventOptions {
  /// The thread that waits for it sleeps instead of spinning.
  bool blocking_wait = false;
  /// The event can be shared with another process through the vendor's own calls on `native()`. Untimed events only.
  bool interprocess = false;
};

namespace detail {

struct Slot;

class EventBase {
 public:
  EventBase(EventBase&& other) noexcept;
  EventBase& operator=(EventBase&& other) noexcept;

  /// Marks everything submitted to the stream so far, in place of what was marked before. A stream of another device is fine.
  void record(StreamRef stream);
  /// True when what was recorded has finished, or nothing was.
  [[nodiscard]] bool query() const;
  /// Waits until it has. It orders the host with the work before the record only.
  void synchronize() const;
  /// The same with a bound: false if the time ran out first.
  template <class Rep, class Period>
  [[nodiscard]] bool synchronize_for(std::chrono::duration<Rep, Period> timeout) const {
    return synchronize_until(deadline_after(timeout));
  }

  /// The vendor's handle; null until the first record.
  [[nodiscard]] native::event native() const;
  /// The device it was last recorded on. @throws errc::invalid_argument if it never was.
  [[nodiscard]] Device device() const;
  /// False once moved from.
  [[nodiscard]] bool valid() const noexcept { return state_ != State::moved_from; }
  /// Gives the handle to the caller, who destroys it; this object is then moved-from. @throws if there is none yet.
  [[nodiscard]] native::event release();

 protected:
  EventBase(EventOptions options, bool timed) noexcept : options_{options}, timed_{timed} {}
  ~EventBase();

  void adopt(native::event handle, Device device, Ownership ownership);
  void refuse_interprocess() const;
  [[nodiscard]] static std::chrono::nanoseconds elapsed(const EventBase& start, const EventBase& stop);

 private:
  friend struct Access;
  enum class State : unsigned char { usable, moved_from };
  /// Where the handle comes from, which says where it goes in the end.
  enum class Origin : unsigned char {
    pool,      ///< made by the library, and kept for the next event of its kind
    taken,     ///< made elsewhere: destroyed, because other code may still know the handle, or share it with another process
    borrowed,  ///< made elsewhere, and left there
  };

  void require_valid(const char* operation) const;
  void record_on_fresh(Slot& slot);
  void discard() noexcept;
  void give_away(native::event event, int device) const noexcept;
  bool synchronize_until(std::chrono::steady_clock::time_point deadline) const;

  // Atomic so that two threads may record one event at once: which record stays is theirs to order, the handle is not torn.
  std::atomic<native::event> handle_{};
  std::atomic<bool> recorded_{false};
  std::atomic<short> device_{-1};
  EventOptions options_;
  bool timed_;
  Origin origin_ = Origin::pool;
  State state_ = State::usable;
};

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
