// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// Events: marks in streams that the host and other streams can wait for.
#pragma once

#include <runnel/current.hpp>
#include <runnel/detail/stream_slot.hpp>
#include <runnel/error.hpp>
#include <runnel/ipc_handle.hpp>
#include <runnel/native.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <iosfwd>
#include <string>
#include <system_error>
#include <type_traits>

namespace runnel::inline RUNNEL_ABI {

/// Options of a new event.
struct EventOptions {
  /// True: a thread that waits for the event sleeps. False (default): it may spin, which reacts
  /// faster and uses a core.
  bool blocking_wait = false;
  /// True: another process can open the event: Event::ipc_handle(). False is the default. Untimed
  /// events only.
  bool interprocess = false;
  /// True: within a capture, record() and wait_event() make nodes of the graph (torch's word, and
  /// CUDA's). Each launch records the event: it can be queried, waited for and timed from outside,
  /// as if record() had been called at the launch. And each launch waits for the record that is
  /// current when it is called. False (default): within a capture the event only orders the streams
  /// of that capture.
  bool external = false;
};

namespace detail {

class EventRef;
class StreamCall;
struct EventNode;
/// The native events of an event. Atomic: one thread may record the event while others use it.
struct EventNodes {
  /// The first one, which stays with the event until its end; null before.
  Atomic<EventNode*> first{nullptr};
  /// The one in its place, if the last record needed another: somebody still waited for the first,
  /// or it is of another device.
  Atomic<EventNode*> later{nullptr};
};

/// The verbs of `Event` and `TimedEvent`. Using an event that was moved from throws
/// `errc::invalid_handle`.
class EventBase {
 public:
  /// The other event is moved-from afterwards.
  EventBase(EventBase&& other) noexcept;
  /// The same.
  EventBase& operator=(EventBase&& other) noexcept;

  /// Records everything submitted to `stream` so far, in place of what the event recorded before.
  /// The event may be recorded on a stream of another device than before. Within a capture an event
  /// with EventOptions::external becomes a node of the graph. Until the first launch the event is
  /// as it was, and from then on it stays on its device.
  /// @throws errc::invalid_argument for a stream of another device, if other processes share the
  /// event or a graph uses it; for an external event in a capture errc::not_supported if it is
  /// interprocess, and errc::capture if other code has begun the capture
  void record(StreamRef stream);
  /// The same, on the current stream.
  void record() { record(current_stream()); }
  /// True when the recorded work has completed, or nothing was recorded. Throws an error of earlier
  /// work.
  /// @throws errc::capture if the event was recorded in a capture: it marks a place in a graph
  [[nodiscard]] bool query() const;
  /// Waits until the recorded work has completed: all that was submitted to the stream before the
  /// record, and nothing else.
  /// @throws as query(); errc::not_permitted inside a host function
  void synchronize() const;
  /// The same, but throws nothing: clears the code, or sets it.
  void synchronize(std::error_code& code) const noexcept { set_by_synchronize(code, *this); }
  /// As synchronize(), but waits at most `timeout`: false if the time ran out first. If the event
  /// is borrowed, or other processes or a graph know it, a record that comes meanwhile is waited
  /// for, too.
  template <class Rep, class Period>
  [[nodiscard]] bool synchronize_for(std::chrono::duration<Rep, Period> timeout) const {
    return synchronize_to(deadline_after(timeout));
  }
  /// The same until a point in time of any clock.
  template <class Clock, class Duration>
  [[nodiscard]] bool synchronize_until(std::chrono::time_point<Clock, Duration> time) const {
    return synchronize_to(deadline_at(time));
  }

  /// As StreamRef::on_complete(), for the work that the event has recorded at this moment: it may
  /// be recorded again or destroyed at once, unless its handle is borrowed, shared with other
  /// processes or a graph, or is released. An event knows of no host function: the outcome is the
  /// runtime's alone. An exception that leaves the function ends the program. Needs
  /// <runnel/completion.hpp>.
  template <class F>
  auto on_complete(F&& function) const
      -> decltype(call_on_complete(*this, std::forward<F>(function))) {
    return call_on_complete(*this, std::forward<F>(function));
  }
  /// @cond
  static void on_complete
      RUNNEL_REFUSED("the function takes the outcome: write [](const Outcome& outcome) { ... }",
                     detail::FunctionWithoutOutcome);
  template <WithoutCompletion F>
  static void on_complete RUNNEL_REFUSED_MEMBER("include <runnel/completion.hpp>", F&&);
  /// @endcond

  /// The vendor's handle; null until the first record.
  [[nodiscard]] native::event native() const;
  /// The device of the last record. @throws errc::invalid_argument if the event was never recorded
  [[nodiscard]] Device device() const;
  /// False once the event was moved from.
  [[nodiscard]] bool is_valid() const noexcept { return is_valid_; }
  /// Gives the handle to the caller, who then destroys it. This event is moved-from afterwards.
  /// @throws errc::invalid_argument if there is no handle yet
  [[nodiscard]] native::event release();

  /// "Event(recorded on device 0)", "TimedEvent(never recorded)" or "Event(moved from)". Makes no
  /// runtime call.
  friend std::string to_string(const EventBase& event) { return event.describe(); }
  /// Writes to_string(event).
  template <class Char, class Traits>
  friend std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                                      const EventBase& event) {
    return out << to_string(event).c_str();
  }

 protected:
  EventBase(EventOptions options, bool timed) noexcept : options_{options}, timed_{timed} {}
  ~EventBase();

  void adopt(native::event handle, Device device, Ownership ownership);
  void refuse_interprocess() const;
  [[nodiscard]] IpcEventHandle export_event();
  void open(const IpcEventHandle& handle);
  [[nodiscard]] static std::chrono::nanoseconds elapsed(const EventBase& start,
                                                        const EventBase& stop);

 private:
  friend struct Access;

  [[nodiscard]] std::string describe() const;
  void require_valid(const char* operation) const;
  [[nodiscard]] EventRef take_node(int device, const char* operation) const;
  [[nodiscard]] EventRef enter_graph(const StreamCall& call, bool records) const;
  void record_as_node(const StreamCall& call);
  void discard() noexcept;
  bool synchronize_to(std::chrono::steady_clock::time_point deadline) const;

  mutable EventNodes nodes_;  // a wait in a capture may need one
  EventOptions options_;
  bool timed_;
  bool is_valid_ = true;
};

}  // namespace detail

/// A mark in a stream, without a time: cheap. Recording it again replaces the mark. An event that
/// was never recorded is complete. An event outlives the stream that it was recorded on. The native
/// event is made at the first record, on that stream's device. Its verbs are those of
/// detail::EventBase, above: record, query, synchronize, synchronize_for, to_string.
class Event : public detail::EventBase {
 public:
  /// An event that is not recorded yet.
  explicit Event(EventOptions options = {}) noexcept : EventBase{options, false} {}
  /// An event that is recorded on `stream` at once.
  explicit Event(StreamRef stream, EventOptions options = {}) : EventBase{options, false} {
    record(stream);
  }

  /// Wraps an event made elsewhere, which counts as recorded. Ownership::take destroys it in the
  /// end, or when the event is recorded on another device. Only EventOptions::external counts: the
  /// handle has the other properties already. Requires: a borrowed event lives as long as the
  /// graphs that use it.
  [[nodiscard]] static Event from_native(native::event handle, Device device, Ownership ownership,
                                         EventOptions options = {}) {
    Event event{EventOptions{.external = options.external}};
    event.adopt(handle, device, ownership);
    return event;
  }

  /// What other processes open the event by. An event that was never recorded gets its native event
  /// here, on the current device. From now on the event is recorded on streams of this device only,
  /// and destroyed in the end instead of reused. Both processes may record it, wait for it and ask:
  /// a wait is for the last record at the call, whichever process made it. Requires: this event
  /// lives until the others are done with theirs. @throws errc::invalid_argument without
  /// EventOptions::interprocess, and for an event that was opened itself
  [[nodiscard]] IpcEventHandle ipc_handle() { return export_event(); }
  /// Opens the event of another process. A second event of one handle is the same event.
  /// @throws errc::invalid_argument for bytes that are no handle, and for a handle of this process;
  /// errc::invalid_device if this process does not see the device; errc::invalid_handle or the
  /// runtime's own error if the event is gone
  [[nodiscard]] static Event from_ipc_handle(const IpcEventHandle& handle) {
    Event event{EventOptions{.interprocess = true}};
    event.open(handle);
    return event;
  }
};

/// An event that also takes the time: `stop - start` is the time between two of them. Its verbs are
/// those of detail::EventBase, above.
class TimedEvent : public detail::EventBase {
 public:
  /// An event that is not recorded yet. @throws errc::invalid_argument for
  /// EventOptions::interprocess
  explicit TimedEvent(EventOptions options = {}) : EventBase{options, true} {
    refuse_interprocess();
  }
  /// An event that is recorded on `stream` at once.
  explicit TimedEvent(StreamRef stream, EventOptions options = {}) : TimedEvent{options} {
    record(stream);
  }

  /// The time from `start` to `stop`, on a GPU to about half a microsecond; negative if `stop` was
  /// recorded first. Does not wait.
  /// @throws errc::not_ready if one of the two has not completed, errc::invalid_argument if one was
  /// never recorded or their devices differ
  [[nodiscard]] friend std::chrono::nanoseconds operator-(const TimedEvent& stop,
                                                          const TimedEvent& start) {
    return elapsed(start, stop);
  }
};

static_assert(std::is_nothrow_move_constructible_v<Event> &&
              std::is_nothrow_move_assignable_v<Event>);
static_assert(sizeof(Event) == sizeof(detail::EventBase) &&
              sizeof(TimedEvent) == sizeof(detail::EventBase));

}  // namespace runnel::inline RUNNEL_ABI
