// SPDX-License-Identifier: Apache-2.0
/// The numbers of a stream's marks. A mark is an event that was recorded on the stream. Its number
/// is higher than that of each earlier mark, and it completes after them. What waits for a mark
/// hangs at it, and becomes due in the order of the numbers.
///
/// A Timeline makes no runtime call of its own: it is given recorded events and a query.
#pragma once

#include "backend.hpp"
#include "base/not_copied.hpp"
#include "base/polling.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "base/try_flag.hpp"
#include "stream/event_node.hpp"

#include <runnel/completion.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

class Timeline : NotCopied {
 public:
  /// The scope in which one thread records a mark: the numbers then have the order of the records.
  /// Waits for the thread that records the last one.
  class Recorder : NotCopied {
   public:
    explicit Recorder(Timeline& of) noexcept : of_{of} {
      if (!try_enter()) [[unlikely]]
        block_until([this] { return try_enter(); });
    }
    ~Recorder() { of_.is_recording_.store(false, std::memory_order_release); }

    /// Adds the mark that was recorded in this scope, and hangs the hook at it. `is_in_order`: the
    /// stream is surely the same as that of the earlier marks. Calls `at_number(number)` before the
    /// hook can become due. Returns whether the timeline has to be watched from now on.
    template <class F>
    [[nodiscard]] bool mark(EventRef event, MarkHook& hook, bool is_in_order,
                            F at_number) noexcept {
      return of_.add(event.release(), hook, is_in_order, at_number);
    }

   private:
    [[nodiscard]] bool try_enter() noexcept {
      return !of_.is_recording_.exchange(true, std::memory_order_acquire);
    }
    Timeline& of_;
  };

  /// The number of the last mark.
  [[nodiscard]] std::uint64_t recorded() const noexcept {
    return recorded_.load(std::memory_order_acquire);
  }
  /// Whether no mark is pending. The numbers go on, whatever stream uses the timeline next.
  [[nodiscard]] bool is_idle() const noexcept {
    return ended_.load(std::memory_order_acquire) == recorded();
  }

  /// Asks how far the stream is. `query(event)` returns the runtime's status, and leaves no error
  /// behind. Calls `due(hook, event, status)` for each hook whose mark is complete or has failed,
  /// in the order of the numbers. Does nothing while another thread does the same.
  template <class Query, class Due>
  void advance(Query query, Due due) noexcept {
    const TryFlag is_alone{is_advancing_};
    if (!is_alone) return;
    for (;;) {
      const Pending pending = read_pending();
      if (pending.first == nullptr) return;
      const backend::status s = query(pending.first->handle);
      if (backend::is_not_ready(s)) return;
      EventNode* const last = s == backend::ok ? last_complete(pending, query) : pending.first;
      take(pending.first, last, s, due);
    }
  }

  /// Ends the watch unless a mark is pending.
  [[nodiscard]] bool stop_watching() noexcept {
    const std::lock_guard lock{lock_};
    if (first_ == nullptr) is_watched_ = false;
    return !is_watched_;
  }
  /// Calls `f` while no hook is added or becomes due, and returns its result.
  template <class F>
  [[nodiscard]] auto locked(F f) noexcept {
    const std::lock_guard lock{lock_};
    return f();
  }
  /// Calls `f` with each hook that is not due yet.
  template <class F>
  void for_each_hook(F f) noexcept {
    const std::lock_guard lock{lock_};
    for (EventNode* each = first_; each != nullptr; each = next_of(*each)) f(*each->hook);
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
  template <class F>
  [[nodiscard]] bool add(EventNode* node, MarkHook& hook, bool is_in_order, F at_number) noexcept {
    node->next = nullptr;
    node->hook = &hook;
    const std::lock_guard lock{lock_};
    node->number = recorded_.load(std::memory_order_relaxed) + 1;
    at_number(node->number);
    recorded_.store(node->number, std::memory_order_release);
    is_in_order_ = is_in_order && (first_ == nullptr || is_in_order_);
    if (first_ == nullptr)
      first_ = node;
    else
      last_->next = node;
    last_ = node;
    return !std::exchange(is_watched_, true);
  }
  [[nodiscard]] Pending read_pending() noexcept {
    const std::lock_guard lock{lock_};
    return {first_, last_, is_in_order_};
  }
  /// The last mark that is complete, given that the first one is. A burst costs a few queries: it
  /// asks the next one, then twice as far each time, and then halves what is left.
  template <class Query>
  [[nodiscard]] static EventNode* last_complete(const Pending& pending, Query query) noexcept {
    constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();
    EventNode* complete = pending.first;
    std::size_t to_incomplete = unknown;  // so many steps from `complete` one is not complete
    for (std::size_t step = 1; pending.is_in_order && step > 0 && complete != pending.last;) {
      EventNode* asked = complete;
      std::size_t at = 0;
      for (; at < step && asked != pending.last; ++at) asked = next_of(*asked);
      if (query(asked->handle) == backend::ok) {
        complete = asked;
        if (to_incomplete != unknown) to_incomplete -= at;
      } else {
        to_incomplete = at;
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
      first_ = next_of(*last);
    }
    for (EventNode* node = first;;) {
      EventNode* const next = next_of(*node);
      const bool is_last = node == last;
      const std::uint64_t number = node->number;
      MarkHook& hook = *std::exchange(node->hook, nullptr);
      due(hook, EventRef::adopt(node), s);
      ended_.store(number, std::memory_order_release);
      if (is_last) return;
      node = next;
    }
  }

  SpinLock lock_;  // for a few instructions: protects the list and what follows up to is_watched_
  EventNode* first_ = nullptr;  // the oldest pending mark
  EventNode* last_ = nullptr;   // the newest, if there is one
  bool is_in_order_ = true;     // The pending ones complete in order.
  bool is_watched_ = false;
  sync::Atomic<std::uint64_t> recorded_{0};
  sync::Atomic<std::uint64_t> ended_{0};  // All marks up to this one are complete or have failed.
  sync::Atomic<bool> is_recording_{false};
  sync::Atomic<bool> is_advancing_{false};
};

}}}  // namespace runnel::RUNNEL_ABI::detail
