// SPDX-License-Identifier: Apache-2.0
/// The host functions of graphs. They live as long as the graph, and run once for each launch.
#pragma once

#include "base/not_copied.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "capture/open_captures.hpp"
#include "function/host_functions.hpp"
#include "slot/point.hpp"
#include "slot/stream_call.hpp"
#include "timeline/event_node.hpp"

#include <runnel/config.hpp>
#include <runnel/keep.hpp>

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A graph node that records an event or waits for it. The native event lives as long as the graph.
struct EventUse {
  EventRef event;
  bool records;
};

struct DestroyKept {
  void operator()(Kept* object) const noexcept { object->destroy(object); }
};
/// An object that graphs keep.
using OwnedObject = std::unique_ptr<Kept, DestroyKept>;

/// What one graph holds: its host functions, kept objects and external events, and the streams of
/// its launches. Launches of a graph run one
/// after the other, so the n-th run of a function belongs to the n-th launch.
class GraphFunctions : NotCopied {
 public:
  /// Shared: several launches and several graphs may call the same function.
  using SharedFunction = std::shared_ptr<HostFunction>;
  /// Makes the function one of a graph: it does not count as an enqueued one.
  [[nodiscard]] static SharedFunction share(OwnedFunction function);

  ~GraphFunctions();

  /// Whether nodes use what only the Graph owns: functions, objects or events.
  bool owns_anything() const noexcept {
    return !functions_.empty() || !kept_.empty() || !events_.empty();
  }
  /// Adds a node that calls the function to the stream's capture.
  void capture(const StreamCall& call, OwnedFunction function, bool is_writer);
  /// Adds a node that records an event or waits for it.
  void capture(const StreamCall& call, EventUse use);
  /// Adds the child graph as a node of the stream's capture. The captured graph then shares the
  /// functions and the kept objects of the child.
  void capture(const StreamCall& call, GraphFunctions& child, native::graph graph);
  /// Emits the records and waits of a launch on the stream.
  void emit_events(const StreamCall& call) const noexcept;
  /// Keeps an object as long as the functions. Takes ownership unless it throws.
  /// @throws std::bad_alloc
  void keep(Kept* object);
  /// Destroys the functions, except one that is running. Nodes that still call one then do nothing.
  void discard() noexcept;
  /// Other code has a handle from now on, and may launch the graph, too.
  void set_shared() noexcept { is_shared_.store(true, std::memory_order_relaxed); }
  bool is_shared() const noexcept { return is_shared_.load(std::memory_order_relaxed); }
  /// Whether a launch has a host function behind it, which may run after the next launch has begun.
  bool ends_launches() const noexcept { return is_shared() && !functions_.empty(); }
  /// Enqueues a launch. Requires: launches do not overlap.
  /// @throws errors of the runtime, and std::bad_alloc before the runtime is called
  void launch(const StreamCall& call, native::executable_graph executable);

 private:
  struct Function {
    Function(SharedFunction function, GraphFunctions& of, bool writes)
        : called{std::move(function)}, graph{of}, is_writer{writes} {}
    SharedFunction called;  // protected by the graph's lock_
    GraphFunctions& graph;
    const bool is_writer;
    sync::Atomic<uint64_t> runs{0};
  };
  /// Whose runs of a function belong to a launch.
  enum class Span : unsigned char {
    from_call,    // all from the call on, and the functions end it: other code has no handle
    not_reached,  // none yet
    reached,      // all until the stream has passed the launch
    passed,       // none any more
  };
  /// Consecutive launches on one stream, with one label and in one epoch. If other code has a
  /// handle, one launch, with a host function before it and one behind it.
  struct Launches {
    GraphFunctions* graph = nullptr;
    uint64_t first = 0;  // 0: not launched by the library
    StreamKey stream{};
    uint64_t label = 0;  // host_function_label
    uint64_t epoch = 0;  // of the stream's timeline
    Span span = Span::from_call;
    bool is_running() const noexcept { return span == Span::from_call || span == Span::reached; }
    bool is_past() const noexcept { return span == Span::from_call || span == Span::passed; }
    bool has_same(const Launches& other) const noexcept {
      return stream == other.stream && label == other.label && epoch == other.epoch &&
             span == Span::from_call && other.span == Span::from_call;
    }
  };
  struct Run {
    Launches launch;
    SharedFunction function;
  };
  static void run(void* function) noexcept;
  static void call(HostFunction& function, const Launches& launch) noexcept;
  [[nodiscard]] static Launches launched_elsewhere(const HostFunction* function) noexcept;
  [[nodiscard]] Run begin_run(Function& function) noexcept;
  void forget_old_launches() noexcept;
  [[nodiscard]] Launches& begin_launch(StreamKey stream);
  void undo_launch() noexcept;
  static void reach(void* launch) noexcept;
  static void pass(void* launch) noexcept;
  void end_runs(size_t runs, size_t writers) noexcept;

  // Protects the lists while they grow: several threads may submit to streams of one capture.
  sync::Mutex capturing_;
  sync::Atomic<bool> is_shared_{false};
  sync::Atomic<size_t> pending_runs_{0}, pending_writers_{0};
  std::list<Function> functions_;
  size_t writers_ = 0;  // of the functions
  std::list<std::shared_ptr<OwnedObject>> kept_;
  std::vector<EventUse> events_;
  SpinLock lock_;  // protects the rest
  uint64_t count_ = 0;
  std::list<Launches> launches_;
  std::list<Launches> undone_;  // A function before a launch may be in the stream all the same.
};

/// The functions and objects of the graph that the stream's capture builds; null if other code has
/// begun the capture. Requires: the stream is being captured.
/// @throws errc::capture if the capture is broken
[[nodiscard]] std::shared_ptr<GraphFunctions> functions_of_capture(const StreamCall& call);
/// The same for what needs a Graph. `what` names it for the error text.
/// @throws also errc::capture if other code has begun the capture
[[nodiscard]] std::shared_ptr<GraphFunctions> require_own_capture(const StreamCall& call,
                                                                  const char* what);
/// @{ Adds a function, the use of an event, or an object to the graph that the stream's capture
/// builds. If other code has begun the capture, the runtime keeps what the graph owns.
/// Requires: the stream is being captured. The last one takes ownership unless it throws.
/// @throws errc::capture if the capture is broken, or if the runtime cannot keep objects
void add_to_capture(const StreamCall& call, OwnedFunction function, bool is_writer);
void add_to_capture(const StreamCall& call, EventUse use);
void add_to_capture(const StreamCall& call, Kept* object);
///@}

}  // namespace runnel::inline RUNNEL_ABI::detail
