// SPDX-License-Identifier: Apache-2.0
/// Captures: work that is submitted to a captured stream becomes part of a graph, and does not
/// enter the stream's queue. A graph has one chain of steps for each stream of the capture. One
/// lock protects all captures of the process.
#pragma once

#include "backend.hpp"
#include "state.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

namespace host {
struct GraphWork;
}

struct native::host_graph_node {
  backend::NodeKind kind;
  std::function<void()> run;            // may be empty; called once for each launch
  native::host_event* event = nullptr;  // of a node that records it or waits for it
  void (*function)(void*) = nullptr;    // of a host function, called by `run`
  void* data = nullptr;
  std::shared_ptr<const host::GraphWork> child{};  // of a child graph
};

namespace host {

/// Memory that was allocated in a capture. The graph owns its addresses while it can be launched or
/// is running. After that, blocks that the user has freed are freed, and the others belong to the
/// user, as if they had been allocated outside.
class GraphMemory {
 public:
  GraphMemory() = default;
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory();
  /// Reserves room for one block.
  /// @throws std::bad_alloc
  void reserve() { blocks_.reserve(blocks_.size() + 1); }
  /// Requires: reserve() was called for this block.
  void add(void* block) noexcept { blocks_.push_back(block); }

 private:
  std::vector<void*> blocks_;
};

/// A position of a stream in a capture: its chain, and the number of steps so far.
struct Position {
  std::size_t chain = 0;
  std::size_t steps = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

/// The content of a graph. Immutable after the capture.
struct GraphWork {
  struct Step {
    std::size_t chain;
    const native::host_graph_node* node;  // null: the chain waits for `after`
    Position after;
  };
  std::list<native::host_graph_node> nodes;
  // Of all chains, in the order of the capture. Chain 0 is the chain of the stream on which the
  // capture began.
  std::vector<Step> steps;
  std::size_t chains = 0;
  GraphMemory memory;
};

/// An open or ended capture. Protected by the lock of all captures.
struct Capture {
  std::uint64_t number;
  backend::CaptureMode mode;
  std::thread::id thread;
  bool is_broken = false;
  bool has_ended = false;
  std::vector<native::host_stream*> streams{};  // by chain; null: destroyed meanwhile
  std::vector<std::size_t> steps{};             // by chain: the number of steps
  std::shared_ptr<GraphWork> work = std::make_shared<GraphWork>();
};

/// The position that an event records on a captured stream.
struct CapturedMark {
  std::shared_ptr<Capture> capture{};  // null: not recorded in a capture
  Position position{};
  [[nodiscard]] explicit operator bool() const noexcept { return capture != nullptr; }
};

[[nodiscard]] backend::status begin_capture(native::host_stream& stream, backend::CaptureMode mode);
/// Ends the capture, even if it returns an error.
[[nodiscard]] backend::status end_capture(native::host_stream& stream,
                                          std::shared_ptr<const GraphWork>& work);
/// Called when the stream is destroyed. Invalidates a capture that was begun on it; in other
/// captures its work stays.
void leave_capture(native::host_stream& stream) noexcept;
/// 0: no capture, or an invalidated one.
[[nodiscard]] std::uint64_t capture_number(const native::host_stream& stream) noexcept;

// The following functions return nothing if the stream is not being captured any more.
[[nodiscard]] std::optional<backend::status> capture_node(native::host_stream& stream,
                                                          native::host_graph_node node);
/// The same for a node that allocates. On success `block` belongs to the graph.
/// @throws std::bad_alloc; the caller then keeps `block`
[[nodiscard]] std::optional<backend::status> capture_allocation(native::host_stream& stream,
                                                                void* block);
/// Sets `mark` to the stream's position in its capture, if there is one.
[[nodiscard]] backend::status capture_mark(const native::host_stream& stream, CapturedMark& mark);
/// Orders later work of the stream after the mark. The stream joins the mark's capture.
[[nodiscard]] backend::status wait_in_capture(native::host_stream& stream,
                                              const CapturedMark& mark);
/// Invalidates the capture of a stream that waits for an event from outside the capture: a graph
/// cannot repeat such a wait.
[[nodiscard]] backend::status break_on_outside_wait(const native::host_stream& stream) noexcept;

/// Adds a node that records the event, or waits for it, at each launch.
[[nodiscard]] inline backend::status capture_event_node(native::stream handle,
                                                        backend::NodeKind kind,
                                                        native::event event) noexcept {
  return catch_bad_alloc([&] {
    return capture_node(resolve(handle), {kind, {}, event}).value_or(status_of(errc::capture));
  });
}

/// Submits work in the order of default and blocking streams, or adds it to the stream's capture.
template <class F>
[[nodiscard]] backend::status enqueue(native::stream handle, backend::NodeKind kind,
                                      F work) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& stream = resolve(handle);
    if (stream.is_captured()) [[unlikely]]
      if (const auto answer = capture_node(stream, {kind, work})) return *answer;
    submit_in_order(stream, std::move(work));
    return backend::ok;
  });
}

}  // namespace host

struct native::host_graph {
  std::shared_ptr<const host::GraphWork> work;
};

}  // namespace runnel::inline RUNNEL_ABI
