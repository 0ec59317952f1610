// SPDX-License-Identifier: Apache-2.0
/// The numbers of a slot's marks. A mark is an event that was recorded on the slot's stream. Its
/// number is higher than that of each earlier mark, and it completes after them. What waits for a
/// mark compares its number with the last complete one. A function of the program hangs at its
/// mark, and becomes due in the order of the numbers.
///
/// What cannot be marked now asks for a number: the next mark that begins gets it, or a higher one.
/// A number may have no event: that all is complete is known from elsewhere, or cannot be known.
///
/// A Timeline makes no runtime call of its own: it is given recorded events and a query. The
/// numbers go on when another stream uses the slot, which needs that all are complete.
#pragma once

#include "backend.hpp"
#include "base/counters.hpp"
#include "base/not_copied.hpp"
#include "base/polling.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "base/try_flag.hpp"
#include "timeline/event_node.hpp"

#include <runnel/completion.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// The progress of some work of a stream.
enum class Progress {
  complete,
  pending,  ///< the runtime will report its completion
  stalled,  ///< an event must be recorded first
  unknown,  ///< only a wait for the devices can tell
  lost,     ///< not even that
};

class Timeline : NotCopied {
 public:
  /// The scope in which one thread records a mark, or asks whether the stream is idle: the numbers
  /// then have the order of the records.
  class Recorder : NotCopied {
   public:
    /// Waits for the thread that records the last mark.
    explicit Recorder(Timeline& of) noexcept : of_{of} {
      if (!try_enter()) [[unlikely]]
        block_until([this] { return try_enter(); });
    }
    /// Does not wait.
    Recorder(Timeline& of, std::try_to_lock_t) noexcept : of_{of} {
      static_cast<void>(try_enter());
    }
    ~Recorder() {
      if (is_entered_) of_.is_recording_.store(false, std::memory_order_release);
    }
    /// False if another thread records a mark.
    explicit operator bool() const noexcept { return is_entered_; }

    /// Adds the mark that was recorded in this scope. `is_in_order`: the stream is surely the same
    /// as that of the earlier marks. Returns its number.
    uint64_t mark(EventRef event, bool is_in_order) noexcept {
      return of_.add(event.release(), nullptr, asked_, is_in_order, [](uint64_t) {}).number;
    }
    /// The same, and hangs the hook at it. Calls `at_number(number)` before the hook can become
    /// due. Returns whether the timeline has to be watched from now on.
    template <class F>
    [[nodiscard]] bool mark(EventRef event, Deferred& hook, bool is_in_order,
                            F at_number) noexcept {
      return of_.add(event.release(), &hook, asked_, is_in_order, at_number).is_new_watch;
    }
    /// The stream was found idle in this scope: what was asked for before is complete.
    void complete() noexcept {
      const std::lock_guard lock{of_.lock_};
      raise(of_.recorded_, asked_);
      of_.raise_completed(asked_);
    }

   private:
    [[nodiscard]] bool try_enter() noexcept {
      is_entered_ = !of_.is_recording_.exchange(true, std::memory_order_acquire);
      // The record comes after the work of all that have asked before.
      if (is_entered_) asked_ = of_.asked_.load(std::memory_order_acquire);
      return is_entered_;
    }
    Timeline& of_;
    bool is_entered_ = false;
    uint64_t asked_ = 0;
  };

  /// The number of the last mark.
  uint64_t recorded() const noexcept { return recorded_.load(std::memory_order_acquire); }
  /// The last number, also if no mark has it yet.
  uint64_t last() const noexcept {
    return std::max(asked_.load(std::memory_order_relaxed), recorded());
  }
  /// The number of the last mark at which a function hangs.
  uint64_t epoch() const noexcept { return epoch_.load(std::memory_order_acquire); }
  /// Whether a number was asked for that no mark has yet.
  bool is_asked() const noexcept {
    return asked_.load(std::memory_order_relaxed) > recorded_.load(std::memory_order_relaxed);
  }
  /// Whether all work before each number is complete: the slot may be used again.
  bool is_idle() const noexcept { return !is_asked() && has_passed(recorded()); }
  /// Whether so many marks are pending that the next one should ask first.
  bool is_long() noexcept {
    const std::lock_guard lock{lock_};
    return first_ != nullptr && last_->number - first_->number >= 8;
  }

  /// Asks for the number of the next mark. If another thread is recording a mark, the stream may
  /// receive that mark before the caller's work, so the caller gets a higher number.
  uint64_t ask() noexcept {
    const std::lock_guard lock{lock_};
    const bool is_recording = is_recording_.load(std::memory_order_acquire);
    const uint64_t next = std::max(recorded() + 1, asked_.load(std::memory_order_relaxed));
    const uint64_t number = is_recording ? next + 1 : next;
    raise(asked_, number);
    return number;
  }
  /// Takes a number without an event, above all that were asked for. Its completion is unknown.
  /// Requires: no thread records a mark in order, which would come before the askers' work and get
  /// a higher number.
  uint64_t skip() noexcept {
    const std::lock_guard lock{lock_};
    return gap_ = take_number(recorded() + 1);
  }
  /// All work that the stream has received is complete.
  void complete_all() noexcept {
    const std::lock_guard lock{lock_};
    raise_completed(take_number(0));
  }
  /// Begins a wait for the devices. Returns the last number of what the wait includes. What was
  /// asked for stays so: the stream may pass it first.
  [[nodiscard]] uint64_t begin_wait() noexcept {
    const std::lock_guard lock{lock_};
    ++waits_;
    const uint64_t number = last();
    if (is_asked()) raise(asked_, number + 1);  // Later work gets a later number.
    return number;
  }
  /// Ends it. `result`: complete or lost, or unknown if there was no wait.
  void end_wait(uint64_t number, Progress result) noexcept {
    const std::lock_guard lock{lock_};
    --waits_;
    // A mark that is being recorded may come before the askers' work, and gets the next number.
    if (is_recording_.load(std::memory_order_acquire)) number = std::min(number, recorded());
    if (result == Progress::complete) {
      raise(recorded_, number);
      raise_completed(number);
    }
    if (result == Progress::lost && number > lost_) lost_ = number;
  }

  bool has_passed(uint64_t number) const noexcept {
    if (completed_.load(std::memory_order_acquire) < number) return false;
    sync::happens_after(this);
    return true;
  }
  /// The progress of the work before the number, as far as advance() has found.
  [[nodiscard]] Progress progress(uint64_t number) noexcept {
    if (has_passed(number)) return Progress::complete;
    const std::lock_guard lock{lock_};
    if (has_passed(number)) return Progress::complete;
    if (number > recorded()) return Progress::stalled;
    const bool is_pending = first_ != nullptr && last_->number >= number;
    if (is_pending || waits_ > 0) return Progress::pending;
    return number > lost_ ? Progress::unknown : Progress::lost;
  }
  /// The oldest pending event behind the work before the number; empty if there is none.
  [[nodiscard]] EventRef event_at(uint64_t number) noexcept {
    const std::lock_guard lock{lock_};
    for (EventNode* each = first_; each != nullptr; each = next_of(*each))
      if (each->number >= number) return EventRef::another_to(*each);
    return {};
  }
  /// Lets the timeline be watched until the number is complete or has failed. Returns whether it
  /// was not watched.
  [[nodiscard]] bool watch_to(uint64_t number) noexcept {
    const std::lock_guard lock{lock_};
    if (number > watched_to_) watched_to_ = number;
    return !std::exchange(is_watched_, true);
  }

  /// Asks how far the stream is. `query(event)` returns the runtime's status, and leaves no error
  /// behind. Calls `due(hook, event, status)` for each hook whose mark is complete or has failed,
  /// in the order of the numbers. Does nothing while another thread does the same. A later mark
  /// that is complete completes those that have failed, if the stream is surely the same.
  template <class Query, class Due>
  void advance(Query query, Due due) noexcept {
    const TryFlag is_alone{is_advancing_};
    if (!is_alone) return;
    for (;;) {
      const Pending pending = read_pending();
      if (pending.first == nullptr) return;
      const backend::status s = query(pending.first->handle);
      if (backend::is_not_ready(s)) return;
      bool is_next_pending = false;
      EventNode* const last =
          s == backend::ok ? last_complete(pending, query, is_next_pending) : pending.first;
      take(pending.first, last, s, due);
      if (is_next_pending) return;
    }
  }

  /// Ends the watch unless a mark that is awaited is pending or asked for.
  [[nodiscard]] bool stop_watching() noexcept {
    const std::lock_guard lock{lock_};
    const bool is_pending = first_ != nullptr && first_->number <= watched_to_;
    if (!is_pending && watched_to_ <= recorded()) is_watched_ = false;
    return !is_watched_;
  }
  /// Calls `f` while no hook is added or becomes due, and returns its result.
  template <class F>
  auto locked(F f) noexcept {
    const std::lock_guard lock{lock_};
    return f();
  }
  /// Calls `f` with each hook that is not due yet.
  template <class F>
  void for_each_hook(F f) noexcept {
    const std::lock_guard lock{lock_};
    for (EventNode* each = first_; each != nullptr; each = next_of(*each))
      if (each->hook != nullptr) f(*each->hook);
  }

 private:
  struct Pending {
    EventNode* first;
    EventNode* last;
    bool is_in_order;
  };

  [[nodiscard]] static EventNode* next_of(const EventNode& node) noexcept {
    return static_cast<EventNode*>(node.next);
  }
  struct Added {
    uint64_t number;
    bool is_new_watch;
  };
  template <class F>
  Added add(EventNode* node, Deferred* hook, uint64_t asked, bool is_in_order,
            F at_number) noexcept {
    node->next = nullptr;
    node->hook = hook;
    if (hook == nullptr) count_up(counters.pooled_events);
    const std::lock_guard lock{lock_};
    const uint64_t number = std::max(recorded() + 1, asked);
    node->number = number;
    at_number(number);
    recorded_.store(number, std::memory_order_release);
    is_in_order_ = is_in_order && (first_ == nullptr || is_in_order_);
    if (first_ == nullptr)
      first_ = node;
    else
      last_->next = node;
    last_ = node;
    if (hook == nullptr) return {number, false};
    epoch_.store(number, std::memory_order_release);
    watched_to_ = std::max(watched_to_, number);
    return {number, !std::exchange(is_watched_, true)};
  }
  ///@{ Requires: the lock is held.
  static void raise(sync::Atomic<uint64_t>& number, uint64_t to) noexcept {
    if (number.load(std::memory_order_relaxed) < to) number.store(to, std::memory_order_release);
  }
  uint64_t take_number(uint64_t at_least) noexcept {
    raise(recorded_, std::max(at_least, asked_.load(std::memory_order_relaxed)));
    return recorded();
  }
  void raise_completed(uint64_t number) noexcept {
    sync::happens_before(this);
    raise(completed_, number);
  }
  ///@}
  [[nodiscard]] Pending read_pending() noexcept {
    const std::lock_guard lock{lock_};
    return {first_, last_, is_in_order_};
  }
  /// The last mark that is complete, given that the first one is. A burst costs a few queries: it
  /// asks the next one, then twice as far each time, and then halves what is left.
  template <class Query>
  [[nodiscard]] static EventNode* last_complete(const Pending& pending, Query query,
                                                bool& is_next_pending) noexcept {
    constexpr size_t unknown = std::numeric_limits<size_t>::max();
    EventNode* complete = pending.first;
    size_t to_incomplete = unknown;  // so many steps from `complete` one is not complete
    for (size_t step = 1; pending.is_in_order && step > 0 && complete != pending.last;) {
      EventNode* asked = complete;
      size_t at = 0;
      for (; at < step && asked != pending.last; ++at) asked = next_of(*asked);
      if (const backend::status s = query(asked->handle); s == backend::ok) {
        complete = asked;
        if (to_incomplete != unknown) to_incomplete -= at;
      } else {
        to_incomplete = at;
        is_next_pending = backend::is_not_ready(s);
      }
      step = to_incomplete == unknown ? 2 * step : to_incomplete / 2;
    }
    return complete;
  }
  /// Takes the pending marks up to `last` out. Only the thread that advances does that.
  template <class Due>
  void take(EventNode* first, EventNode* last, backend::status s, Due due) noexcept {
    {
      const std::lock_guard lock{lock_};
      const bool is_behind_gap =
          gap_ < first->number && gap_ > completed_.load(std::memory_order_relaxed);
      if (s != backend::ok)
        gap_ = last->number;
      else if (is_in_order_ || !is_behind_gap)
        raise_completed(last->number);
      first_ = next_of(*last);
    }
    for (EventNode* node = first;;) {
      EventNode* const next = next_of(*node);
      const bool is_last = node == last;
      Deferred* const hook = std::exchange(node->hook, nullptr);
      EventRef event = EventRef::adopt(node);
      if (hook != nullptr)
        due(*hook, std::move(event), s);
      else
        count_down(counters.pooled_events);
      if (is_last) return;
      node = next;
    }
  }

  SpinLock lock_;               // for a few instructions: protects what follows up to `waits_`
  EventNode* first_ = nullptr;  // the oldest pending mark
  EventNode* last_ = nullptr;   // the newest, if there is one
  bool is_in_order_ = true;     // The pending ones complete in order.
  bool is_watched_ = false;
  uint64_t watched_to_ = 0;
  uint64_t gap_ = 0;   // The last number that has failed, or has no event.
  uint64_t lost_ = 0;  // What was not complete up to this one never will be.
  int waits_ = 0;      // for the devices, under way
  sync::Atomic<uint64_t> recorded_{0};
  sync::Atomic<uint64_t> epoch_{0};
  sync::Atomic<uint64_t> completed_{0};
  sync::Atomic<uint64_t> asked_{0};
  sync::Atomic<bool> is_recording_{false};
  sync::Atomic<bool> is_advancing_{false};
};

}  // namespace runnel::inline RUNNEL_ABI::detail
