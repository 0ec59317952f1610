// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// Events: markers in streams that the host and other streams can wait for.
#pragma once

#include <runnel/current.hpp>
#include <runnel/ipc_handle.hpp>

namespace runnel::inline RUNNEL_ABI {

/// Options of a new event.
struct EventOptions {
  /// True: a thread that waits for the event sleeps. False (default): it may spin, which reacts
  /// faster and uses a core.
  bool blocking_wait = false;
  /// True: other processes can open the event, see Event::ipc_handle(); not for TimedEvent
  /// (default: false).
  bool interprocess = false;
  /// True: within a capture, record() and wait_event() become nodes of the graph (CUDA and torch
  /// call such events external, too). Each launch records the event: code outside the graph can
  /// query it, wait for it and measure times with it, as if record() had been called at the launch.
  /// A node that waits waits for the record that is current when the graph is launched. False
  /// (default): within a capture the event only orders the streams of that capture.
  bool external = false;
};

namespace detail {

class EventRef;
class StreamCall;
struct EventNode;
/// The native events of an event. They are atomic because one thread may record the event while
/// others use it.
struct EventNodes {
  /// The first native event, which lives as long as the event; null before the first record.
  Atomic<EventNode*> first{nullptr};
  /// The native event of the last record, if that could not reuse the first one: a wait still
  /// referred to the first, or the first is of another device.
  Atomic<EventNode*> later{nullptr};
};

/// The members that `Event` and `TimedEvent` share. Using a moved-from event throws
/// `errc::invalid_handle`.
class EventBase {
 public:
  /// The other event is moved-from afterwards.
  EventBase(EventBase&& other) noexcept;
  /// The same.
  EventBase& operator=(EventBase&& other) noexcept;

  /// Records everything submitted to `stream` so far, in place of what the event recorded before.
  /// The event may be recorded on a stream of another device than before. Within a capture, the
  /// record of an event with EventOptions::external becomes a node of the graph. Until the first
  /// launch the event is unchanged; from the capture on, it can be recorded only on streams of that
  /// device.
  /// @throws errc::invalid_argument for a stream of another device, if other processes share the
  /// event or a graph uses it; for an external event in a capture errc::not_supported if it is
  /// interprocess, and errc::capture as keep()
  void record(StreamRef stream);
  /// The same, on the current stream.
  void record() { record(current_stream()); }
  /// Whether the recorded work has completed; true if nothing was recorded. Throws an error of
  /// earlier work.
  /// @throws errc::capture if the event was recorded in a capture: it then marks a position in a
  /// graph
  [[nodiscard]] bool query() const;
  /// Waits until the recorded work has completed: everything that was submitted to the stream
  /// before the record, and nothing else.
  /// @throws as query(); errc::not_permitted inside a host function
  void synchronize() const;
  /// The same, but throws nothing: it clears or sets the code.
  void synchronize(std::error_code& code) const noexcept { set_by_synchronize(code, *this); }
  /// As synchronize(), but waits at most `timeout`; returns false if the time ran out first. If the
  /// event is borrowed, or is shared with other processes or a graph, the call also waits for a
  /// record that is made meanwhile.
  template <class Rep, class Period>
  [[nodiscard]] bool synchronize_for(std::chrono::duration<Rep, Period> timeout) const {
    return synchronize_to(deadline_after(timeout));
  }
  /// The same until a point in time of any clock.
  template <class Clock, class Duration>
  [[nodiscard]] bool synchronize_until(std::chrono::time_point<Clock, Duration> time) const {
    return synchronize_to(deadline_at(time));
  }

  /// As StreamRef::on_complete(), for the work that the event has recorded at the time of the call.
  /// The event may be recorded again or destroyed after the call, unless its handle is borrowed,
  /// shared with other processes or a graph, or released. The outcome has only errors of the
  /// runtime, not the exceptions of host functions. An exception that leaves the function
  /// terminates the program. Include <runnel/completion.hpp> to use it.
  template <class F>
  auto on_complete(F&& function) const
      -> decltype(call_on_complete(*this, std::forward<F>(function))) {
    return call_on_complete(*this, std::forward<F>(function));
  }
  /// @cond
  static void on_complete RUNNEL_REFUSED(
      "include <runnel/completion.hpp>, and pass a function of a const Outcome&", detail::Anything);
  /// @endcond

  /// The vendor's handle; null until the first record.
  [[nodiscard]] native::event native() const;
  /// The device of the last record. @throws errc::invalid_argument if the event was never recorded
  [[nodiscard]] Device device() const;
  /// False for a moved-from event.
  [[nodiscard]] bool is_valid() const noexcept { return is_valid_; }
  /// Transfers ownership of the handle to the caller, who must destroy it. This event is moved-from
  /// afterwards.
  /// @throws errc::invalid_argument if there is no handle yet
  [[nodiscard]] native::event release();

  /// Text such as "Event(recorded on device 0)", "TimedEvent(never recorded)" or "Event(moved
  /// from)". Makes no runtime call.
  friend std::string to_string(const EventBase& event) { return event.describe(); }
  /// Writes to_string(event).
  template <class Char, class Traits>
  friend auto& operator<<(std::basic_ostream<Char, Traits>& out, const EventBase& event) {
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

  mutable EventNodes nodes_;  // Mutable: a wait in a capture may have to create a node.
  EventOptions options_;
  bool timed_;
  bool is_valid_ = true;
};

}  // namespace detail

/// A marker in a stream, which the host and other streams can wait for. It takes no time stamp, so
/// it is cheaper than a TimedEvent. Recording it again replaces the marker. An event that was never
/// recorded counts as complete. An event may outlive the stream that it was recorded on. The native
/// event is created by the first record, on that stream's device. Most of its members are those of
/// detail::EventBase, above: record, query, synchronize, synchronize_for, on_complete, to_string.
class Event : public detail::EventBase {
 public:
  /// Creates an event that is not recorded yet.
  explicit Event(EventOptions options = {}) noexcept : EventBase{options, false} {}
  /// Creates an event and records it on `stream`.
  explicit Event(StreamRef stream, EventOptions options = {}) : EventBase{options, false} {
    record(stream);
  }
  ///@{ The other event is moved-from afterwards.
  Event(Event&&) noexcept = default;
  Event& operator=(Event&&) noexcept = default;
  ///@}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Wraps a native event that other code created, which is treated as recorded. With
  /// Ownership::take the native event is destroyed with this object, or when this object is
  /// recorded on another device. Of the options only EventOptions::external is used: the handle has
  /// the other properties already. Requires: a borrowed native event lives as long as the graphs
  /// that use it.
  [[nodiscard]] static Event from_native(native::event handle, Device device, Ownership ownership,
                                         EventOptions options = {}) {
    Event event{EventOptions{.external = options.external}};
    event.adopt(handle, device, ownership);
    return event;
  }

  /// Returns the handle with which other processes open the event. If the event was never recorded,
  /// the call creates its native event, on the current device. From now on the event can be
  /// recorded only on streams of its device, and its native event is destroyed with it instead of
  /// being reused. Both processes may record it, wait for it and query it: a wait is for the last
  /// record before the call, by either process. Requires: this event lives until the other
  /// processes no longer use theirs. @throws errc::invalid_argument without
  /// EventOptions::interprocess, and for an event that was opened from a handle
  [[nodiscard]] IpcEventHandle ipc_handle() { return export_event(); }
  /// Opens the event of another process. Two objects that open the same handle refer to the same
  /// event.
  /// @throws errc::invalid_argument for bytes that are not a handle, and for a handle of this
  /// process; errc::invalid_device if the device is not visible to this process;
  /// errc::invalid_handle or the runtime's own error if the event was destroyed
  [[nodiscard]] static Event from_ipc_handle(const IpcEventHandle& handle) {
    Event event{EventOptions{.interprocess = true}};
    event.open(handle);
    return event;
  }
};

/// An event that also takes a time stamp: `stop - start` is the time between two of them. Most of
/// its members are those of detail::EventBase, above.
class TimedEvent : public detail::EventBase {
 public:
  /// Creates an event that is not recorded yet. @throws errc::invalid_argument for
  /// EventOptions::interprocess
  explicit TimedEvent(EventOptions options = {}) : EventBase{options, true} {
    refuse_interprocess();
  }
  /// Creates an event and records it on `stream`.
  explicit TimedEvent(StreamRef stream, EventOptions options = {}) : TimedEvent{options} {
    record(stream);
  }
  ///@{ The other event is moved-from afterwards.
  TimedEvent(TimedEvent&&) noexcept = default;
  TimedEvent& operator=(TimedEvent&&) noexcept = default;
  ///@}
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;

  /// The time from `start` to `stop`, with a resolution of about half a microsecond on a GPU;
  /// negative if `stop` was recorded first. Does not wait.
  /// @throws errc::not_ready if one of the two has not completed, errc::invalid_argument if one was
  /// never recorded or their devices differ
  [[nodiscard]] friend std::chrono::nanoseconds operator-(const TimedEvent& stop,
                                                          const TimedEvent& start) {
    return elapsed(start, stop);
  }
};

/// @cond
RUNNEL_REFUSED_OPERATOR("an Event has no time: write TimedEvent", operator-(const Event&,
                                                                            const Event&));
RUNNEL_REFUSED_OPERATOR("an Event has no time: write TimedEvent", operator-(const TimedEvent&,
                                                                            const Event&));
RUNNEL_REFUSED_OPERATOR("an Event has no time: write TimedEvent", operator-(const Event&,
                                                                            const TimedEvent&));
/// @endcond

static_assert(std::is_nothrow_move_constructible_v<Event> &&
              std::is_nothrow_move_assignable_v<Event>);
static_assert(sizeof(Event) == sizeof(detail::EventBase) &&
              sizeof(TimedEvent) == sizeof(detail::EventBase));

}  // namespace runnel::inline RUNNEL_ABI
