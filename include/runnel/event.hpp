// SPDX-License-Identifier: Apache-2.0
/// Events: marks in streams that other streams, and the host, can wait for.
#pragma once

#include <runnel/detail/event_base.hpp>
#include <runnel/native.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <type_traits>

namespace runnel::inline RUNNEL_ABI {

/// A mark in a stream, without a time: cheap. Recording again replaces it. An event that was never recorded is complete.
/// It outlives the stream that it was recorded on. The native event is made at the first record, on that stream's device.
class Event : public detail::EventBase {
 public:
  /// Not recorded yet.
  explicit Event(EventOptions options = {}) noexcept : EventBase{options, false} {}
  /// Recorded on the stream at once.
  explicit Event(StreamRef stream, EventOptions options = {}) : EventBase{options, false} { record(stream); }

  /// Wraps an event made elsewhere, which counts as recorded; `take` destroys it in the end, or when the event is recorded on another
  /// device.
  [[nodiscard]] static Event from_native(native::event handle, Device device, Ownership ownership) {
    Event event;
    event.adopt(handle, device, ownership);
    return event;
  }
};

/// An event that also takes the time. `stop - start` measures what lay between.
class TimedEvent : public detail::EventBase {
 public:
  /// Not recorded yet. @throws errc::invalid_argument for `interprocess`
  explicit TimedEvent(EventOptions options = {}) : EventBase{options, true} { refuse_interprocess(); }
  /// Recorded on the stream at once.
  explicit TimedEvent(StreamRef stream, EventOptions options = {}) : TimedEvent{options} { record(stream); }

  /// The time from `start` to `stop`, to about half a microsecond on a GPU; negative if they were recorded the other way round.
  /// @throws errc::not_ready if one has not finished (it does not wait), errc::invalid_argument if one was never recorded or the
  /// two are on different devices.
  [[nodiscard]] friend std::chrono::nanoseconds operator-(const TimedEvent& stop, const TimedEvent& start) { return elapsed(start, stop); }
};

static_assert(std::is_nothrow_move_constructible_v<Event> && std::is_nothrow_move_assignable_v<Event>);
static_assert(sizeof(Event) == sizeof(detail::EventBase) && sizeof(TimedEvent) == sizeof(detail::EventBase));

}  // namespace runnel::inline RUNNEL_ABI
