// SPDX-License-Identifier: Apache-2.0
/// The events that are nodes of graphs.
#pragma once

#include <runnel/detail/backend.hpp>
#include <runnel/native.hpp>

#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

/// What becomes of a native event that nobody needs any more.
enum class EventFate : unsigned char { pool, destroy, leave };

/// Requires: no call uses the event. `may_be_watched`: the watcher may still query it, and then disposes of it.
void dispose_of(native::event event, int device, backend::EventKind kind, EventFate fate, bool may_be_watched) noexcept;

/// A native event that graphs record or wait for. Its Event and the graphs own it together: it lives as long as any of them.
struct GraphEvent {
  GraphEvent(native::event of, int on_device, backend::EventKind with, EventFate then) noexcept
      : event{of}, device{on_device}, kind{with}, fate{then} {}
  GraphEvent(const GraphEvent&) = delete;
  GraphEvent& operator=(const GraphEvent&) = delete;
  ~GraphEvent() { dispose_of(event, device, kind, fate, true); }

  const native::event event;
  const int device;
  const backend::EventKind kind;
  EventFate fate;
};

/// A node of a graph that records an event or waits for it.
struct EventNode {
  std::shared_ptr<GraphEvent> event;
  bool records;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
