// SPDX-License-Identifier: Apache-2.0
/// The service thread. It calls completion functions, and gives back what streams still used when
/// it was dropped, except for pinned memory, which allocations poll (memory/pinned_shelves.hpp). It
/// advances the timelines of the streams that have completions, and queries events. A host function
/// would not do: it is not called after a device is lost, and it would delay the stream's later
/// work. The thread starts with the first such object. It holds no lock while it calls functions of
/// the program. What must wait for idle devices has a thread of its own (memory/releaser.hpp),
/// because the runtime may block that one for long.
#pragma once

#include "base/counters.hpp"
#include "base/deferred.hpp"
#include "base/sync.hpp"
#include "slot/point.hpp"
#include "slot/slots.hpp"
#include "timeline/event_node.hpp"

#include <runnel/completion.hpp>

#include <cstdint>
#include <list>
#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

struct DestroyCompletion {
  void operator()(Completion* completion) const noexcept {
    const EventRef event = EventRef::adopt(completion->event);
    completion->destroy(completion);
    count_ended(Count::ended_completions);
  }
};
using OwnedCompletion = std::unique_ptr<Completion, DestroyCompletion>;

/// An object that is given back once the work before its points is complete.
struct DeferredWork : Deferred {
  Point own{};
  std::list<Point> others{};
  // A wait for the devices has failed, so the library does not know whether the work has ended.
  // run() then frees nothing.
  bool is_unknown = false;
};
/// Records the points, unless this is a host function, and calls `object.run` once they are
/// complete: on the service thread, or on one that needs memory. Without a thread the caller waits
/// for them.
void run_after(DeferredWork& object) noexcept;
/// Waits for all devices: all work that was deferred before is complete then. Returns false if that
/// is not known. Does not wait if that could break a capture.
bool complete_deferred_work() noexcept;

class Reclaimer {
 public:
  /// @throws errc::out_of_memory if the system has no thread
  void start(const char* operation);
  /// Returns whether the thread runs.
  [[nodiscard]] bool try_start() noexcept;
  /// Watches the stream's timeline until no mark is pending. Requires: start() was called.
  void watch(Slot& slot) noexcept;
  /// Ends the pause of the thread, if it sleeps.
  void wake() noexcept;
  /// Adds a completion of an event. Requires: start() was called.
  void add(OwnedCompletion completion) noexcept { add_to(new_events_, *completion.release()); }
  /// Adds what can be run at once, or after its points.
  void add(Deferred& object) noexcept { add_to(calls_program_, object); }
  void add(DeferredWork& object) noexcept { add_to(new_work_, object); }
  /// Runs what can be run now and calls no function of the program; leaves what calls one to the
  /// service thread. For a thread that needs what is given back so. Returns whether it has run
  /// some, or another thread is looking for them at this moment. Requires: the runtime may be
  /// called, in a RelaxedCapture scope.
  bool give_back() noexcept;
  /// Passes an exception of work on the stream to the completions that were submitted after that
  /// work.
  void note_failure(Slot& slot, uint64_t stream_id, const Failure& failure) noexcept;
  /// What note_failure() has passed to a completion whose function has not returned.
  [[nodiscard]] std::exception_ptr failure_of(const Completion& completion) noexcept;
  /// Asks how far the stream is. Completions that are due go to the service thread.
  void advance(Slot& slot) noexcept;
  /// Stops the thread's runtime calls. Called when the process begins to exit.
  void stop() noexcept;

 private:
  void add_to(Arrivals<&Deferred::next>& list, Deferred& object) noexcept;
  void work() noexcept;
  void watch_timelines() noexcept;
  void sort_events() noexcept;
  void ask_events() noexcept;
  [[nodiscard]] Deferred** ask(EventLine& line, Deferred** link) noexcept;
  void make_due(Completion& completion, backend::status status) noexcept;
  [[nodiscard]] bool is_over(const Point& point, DeferredWork& object) noexcept;
  [[nodiscard]] bool is_due(DeferredWork& object) noexcept;
  [[nodiscard]] DeferredQueue take_due() noexcept;
  bool has_due() const noexcept { return calls_ != nullptr || !calls_program_.is_empty(); }
  [[nodiscard]] bool call_due() noexcept;
  void pause(sync::Clock::duration unsuccessful) noexcept;

  sync::Mutex starting_;
  sync::Atomic<bool> started_{false};
  sync::Atomic<bool> calling_{false};  // The thread may be making runtime calls of its own.
  sync::Atomic<bool> stopped_{false};
  // What other threads add.
  Arrivals<&Slot::next_watched> new_watched_;
  Arrivals<&Deferred::next> new_events_;
  Arrivals<&Deferred::next> new_work_;       // DeferredWork
  Arrivals<&Deferred::next> calls_program_;  // can be run now, by the thread: completions, too
  // Only the thread uses the following members, up to `calls_`.
  EventLine* lines_ = nullptr;  // those that are not empty
  EventLine of_unknown_stream_{};
  Deferred* calls_ = nullptr;  // what it has taken of `calls_program_`, the oldest first
  SpinLock failures_;          // protects the failures of completions that are due
  // A thread uses the following members, up to `rounds_`.
  sync::Atomic<bool> is_looking_{false};
  Slot* watched_ = nullptr;
  Deferred* waiting_ = nullptr;  // DeferredWork, the oldest first
  uint32_t rounds_ = 0;
  sync::Atomic<bool> is_waiting_{false};  // Something is watched, or waits.
  sync::Atomic<uint32_t> signal_{0};      // changes with each addition
  sync::Atomic<bool> asleep_{false};
};
[[nodiscard]] Reclaimer& reclaimer() noexcept;

/// True on the service thread.
bool is_service_thread() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
