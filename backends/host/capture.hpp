// SPDX-License-Identifier: Apache-2.0
/// Captures: what is submitted to a stream goes into a graph instead of into the stream's queue. A
/// graph has one chain of steps for each stream that took part. One lock guards all captures of the
/// process.
#pragma once

#include "state.hpp"

#include <runnel/detail/backend.hpp>

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
  void (*function)(void*) = nullptr;    // of a host function, which `run` calls
  void* data = nullptr;
  std::shared_ptr<const host::GraphWork> child{};  // of a graph within the graph
};

namespace host {

/// Memory that was allocated in a capture. Its addresses stay the graph's until nothing can launch
/// or run it any more; then what is freed is freed, and the rest is the user's as if it had been
/// allocated outside.
class GraphMemory {
 public:
  GraphMemory() = default;
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory();
  /// Makes room for one block. @throws std::bad_alloc
  void reserve() { blocks_.reserve(blocks_.size() + 1); }
  /// Requires: reserve() was called for it.
  void add(void* block) noexcept { blocks_.push_back(block); }

 private:
  std::vector<void*> blocks_;
};

/// What a stream of a capture has come to: its chain, and how many steps that has.
struct Position {
  std::size_t chain = 0;
  std::size_t steps = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

/// What a graph does. Nothing changes it once the capture has ended.
struct GraphWork {
  struct Step {
    std::size_t chain;
    const native::host_graph_node* node;  // null: the chain waits for what another one had done
    Position after;
  };
  std::list<native::host_graph_node> nodes;
  std::vector<Step>
      // of all chains, in the order in which they were captured; chain 0 is that of the stream
      // where the capture began
      steps;
  std::size_t chains = 0;
  GraphMemory memory;
};

/// A capture under way, or ended. The lock of all captures guards it.
struct Capture {
  std::uint64_t number;
  backend::CaptureMode mode;
  std::thread::id thread;
  bool is_broken = false;
  bool has_ended = false;
  std::vector<native::host_stream*> streams{};  // by chain; null: destroyed meanwhile
  std::vector<std::size_t> steps{};             // by chain: how many there are
  std::shared_ptr<GraphWork> work = std::make_shared<GraphWork>();
};

/// What an event records on a captured stream.
struct CapturedMark {
  std::shared_ptr<Capture> capture{};  // null: no place in a capture
  Position position{};
  [[nodiscard]] explicit operator bool() const noexcept { return capture != nullptr; }
};

[[nodiscard]] backend::status begin_capture(native::host_stream& stream, backend::CaptureMode mode);
/// Ends the capture, also if the answer is an error.
[[nodiscard]] backend::status end_capture(native::host_stream& stream,
                                          std::shared_ptr<const GraphWork>& work);
/// The stream is destroyed. A capture that was begun on it is broken; in another one its work
/// stays.
void leave_capture(native::host_stream& stream) noexcept;
/// 0: none, or it is broken.
[[nodiscard]] std::uint64_t capture_number(const native::host_stream& stream) noexcept;

// These return nothing if the stream takes no part in a capture any more.
[[nodiscard]] std::optional<backend::status> capture_node(native::host_stream& stream,
                                                          native::host_graph_node node);
/// The same for a node that allocates. Afterwards `block` belongs to the graph. @throws
/// std::bad_alloc; `block` is the caller's then
[[nodiscard]] std::optional<backend::status> capture_allocation(native::host_stream& stream,
                                                                void* block);
/// The last step of the stream's chain, if that is a node. Null otherwise.
[[nodiscard]] const native::host_graph_node* last_node(const native::host_stream& stream) noexcept;
/// Where the stream stands in its capture, if it takes part in one.
[[nodiscard]] CapturedMark capture_mark(const native::host_stream& stream);
/// Later work of the stream comes after the mark: the stream takes part in the mark's capture from
/// then on.
[[nodiscard]] backend::status wait_in_capture(native::host_stream& stream,
                                              const CapturedMark& mark);
/// Breaks the capture of a stream that was told to wait for an event from outside of the capture: a
/// graph cannot repeat such a wait.
[[nodiscard]] backend::status refuse_outside_wait(const native::host_stream& stream) noexcept;

/// A node that records the event, or waits for it, at each launch.
[[nodiscard]] inline backend::status capture_event_node(native::stream handle,
                                                        backend::NodeKind kind,
                                                        native::event event) noexcept {
  return catch_bad_alloc([&] {
    return capture_node(resolve(handle), {kind, {}, event}).value_or(status_of(errc::capture));
  });
}

/// Submits work in the order that default and blocking streams promise, or adds it to the stream's
/// capture.
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
