// SPDX-License-Identifier: Apache-2.0
/// The host functions of graphs. A graph's functions live as long as the graph, and run once for
/// each launch.
#pragma once

#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "stream/event_node.hpp"
#include "stream/host_functions.hpp"
#include "stream/stream_call.hpp"
#include "stream/stream_point.hpp"

#include <runnel/config.hpp>
#include <runnel/keep.hpp>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A node of a graph that records an event or waits for it. The native event lives as long as the
/// graph.
struct EventUse {
  EventRef event;
  bool records;
};

/// The host functions of one graph, and which stream launched it when: the launches of a graph run
/// one after the other, so that the n-th run of a function belongs to the n-th launch.
class GraphFunctions {
 public:
  GraphFunctions() = default;
  GraphFunctions(const GraphFunctions&) = delete;
  GraphFunctions& operator=(const GraphFunctions&) = delete;

  ~GraphFunctions();

  /// Whether there is neither a function nor an object.
  [[nodiscard]] bool is_empty() const noexcept { return functions_.empty() && kept_.empty(); }
  /// Adds a node to the stream's capture, which calls the function.
  void capture(const StreamCall& call, OwnedFunction function);
  /// Adds a node that records an event or waits for it.
  void capture(const StreamCall& call, EventUse use);
  /// @{ Changes a node from the next launch on, by what the runtime calls it with. A function that
  /// no launch needs any more is destroyed after its last run, or here. Requires: no launch begins
  /// meanwhile. Takes the only function of `from`. @throws std::bad_alloc
  void change(const void* node_data, GraphFunctions& from);
  void set_enabled(const void* node_data, bool enabled);
  /// @} Adds the other graph as a node of the stream's capture, whose graph then calls the same
  /// functions, and keeps what the other one keeps.
  void capture(const StreamCall& call, GraphFunctions& child, native::graph graph,
               native::executable_graph executable);
  /// Keeps what the other one keeps. @throws std::bad_alloc, and then nothing changed
  void take_kept(GraphFunctions& from);
  /// Each capture has another number: a node of a graph belongs to it.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  ///@{ Whether a node of the capture was asked for.
  [[nodiscard]] bool has_given_nodes() const noexcept {
    return has_given_nodes_.load(std::memory_order_relaxed);
  }
  void note_given_node() noexcept { has_given_nodes_.store(true, std::memory_order_relaxed); }
  ///@}
  /// Says to observers what a launch on the stream has done with the events.
  void emit_events(const StreamCall& call) const noexcept;
  /// The events must outlive the native graph.
  [[nodiscard]] std::vector<EventUse> take_events() noexcept { return std::move(events_); }
  /// Keeps an object as long as the functions. Takes ownership unless it throws. @throws
  /// std::bad_alloc
  void keep(Kept* object);
  /// Destroys the functions; nodes that are still called do nothing then. One that runs at the
  /// moment stays.
  void discard() noexcept;
  ///@{ Around a launch. Requires: no two launches overlap. @throws std::bad_alloc
  void begin_launch(StreamUse stream);
  void undo_launch() noexcept;
  ///@}

 private:
  /// Several launches, and several graphs, may call one function.
  using SharedFunction = std::shared_ptr<HostFunction>;
  struct Function {
    /// What the launches from that number on call. Null: nothing.
    struct Version {
      std::uint64_t first;
      SharedFunction function;
    };
    Function(SharedFunction called, GraphFunctions& of)
        : latest{std::move(called)}, versions{{1, latest}}, graph{of} {}
    SharedFunction latest;
    bool is_enabled = true;
    std::vector<Version> versions;  // guarded by the graph's lock_
    GraphFunctions& graph;
    sync::Atomic<std::uint64_t> runs{0};
  };
  /// Successive launches on one stream, with one label and in one epoch.
  struct Launches {
    std::uint64_t first;
    StreamUse stream;
    std::uint64_t label;  // host_function_label
    std::uint64_t epoch;  // Slot::completions
    [[nodiscard]] bool has_same(const Launches& other) const noexcept {
      return stream == other.stream && label == other.label && epoch == other.epoch;
    }
  };
  struct Run {
    Launches launch;
    SharedFunction function;
  };
  [[nodiscard]] static SharedFunction share(OwnedFunction function);
  static void run(void* function) noexcept;
  static void call(HostFunction& function, const Launches& launch) noexcept;
  [[nodiscard]] Run begin_run(Function& function) noexcept;
  [[nodiscard]] SharedFunction end_run(Function& function) noexcept;
  [[nodiscard]] Function& find(const void* node_data) noexcept;
  void call_from_now_on(Function& function);
  void forget_old_launches() noexcept;

  [[nodiscard]] static std::uint64_t next_number() noexcept;
  struct DestroyKept {
    void operator()(Kept* object) const noexcept { object->destroy(object); }
  };
  const std::uint64_t number_ = next_number();
  sync::Atomic<bool> has_given_nodes_{false};
  // guards the lists while they grow: threads may submit to several streams of one capture
  sync::Mutex capturing_;
  std::list<Function> functions_;
  std::vector<std::shared_ptr<Kept>> kept_;
  std::vector<EventUse> events_;
  SpinLock lock_;  // guards the rest
  std::uint64_t count_ = 0;
  std::vector<Launches> launches_;
};

/// A capture that was begun with the library and has not ended.
struct OpenCapture {
  // the runtime's, or that of announce_capture(); 0: there is no such capture
  std::uint64_t number = 0;
  StreamUse stream{};        // on which it was begun
  std::thread::id thread{};  // that began it
  std::shared_ptr<GraphFunctions> functions{};
  std::vector<native::event> events{};  // recorded as marks of it
  const char* broken_by = nullptr;      // the operation that has broken it, as far as that is known
};
/// Enters a capture that is about to begin, so that no thread begins a wait for its device
/// meanwhile. Returns a number that stands for it until it is numbered. @throws std::bad_alloc
[[nodiscard]] std::uint64_t announce_capture(OpenCapture capture);
/// As long as the lock is held, no capture begins with the library.
[[nodiscard]] std::unique_lock<sync::Mutex> keep_captures_from_beginning() noexcept;
/// The runtime has begun the capture, and gave it that number.
void number_capture(std::uint64_t announced, std::uint64_t number) noexcept;
/// @throws errc::capture if the calling thread has begun a capture that is open
void refuse_in_own_capture(const char* operation);
/// The capture of that number.
[[nodiscard]] OpenCapture find_capture(std::uint64_t number) noexcept;
/// What the graph of the stream's capture owns. Requires: the stream is being captured. @throws
/// errc::capture if the capture is broken, or was begun elsewhere; `what` is what no Graph would
/// own then
[[nodiscard]] std::shared_ptr<GraphFunctions> functions_of_capture(const StreamCall& call,
                                                                   const char* what);
/// The capture that was begun on the stream.
[[nodiscard]] OpenCapture capture_begun_on(StreamUse stream) noexcept;
/// All of them. @throws std::bad_alloc
[[nodiscard]] std::vector<OpenCapture> open_captures();
/// The event was recorded on the stream: the last record in an open capture counts, or one outside
/// of them.
void note_event(const Slot& slot, native::event event) noexcept;
/// Whether the event marks a place in an open capture. To ask the runtime about it would break the
/// capture.
[[nodiscard]] bool is_event_of_open_capture(native::event event) noexcept;
/// That operation has broken the capture, unless an earlier one has.
void note_broken(std::uint64_t number, const char* operation) noexcept;
void close_capture(std::uint64_t number) noexcept;
/// Ends the stream's native capture: tries again if that fails once. After an error `graph` is
/// null. Requires: as abandon_capture().
[[nodiscard]] backend::status end_native_capture(Slot& slot, native::graph& graph) noexcept;
/// The same for a graph that nobody wants.
void discard_native_capture(Slot& slot) noexcept;
/// Ends the capture that was begun on the stream, if there is one: nobody else will, because the
/// library's views of the stream end. Requires: its device is current.
void abandon_capture(StreamUse stream) noexcept;
/// The same for all captures that the calling thread has begun. Requires: the runtime may be
/// called.
void abandon_own_captures() noexcept;
/// As abandon_capture(), for a native stream that exists no more.
void forget_capture(StreamUse stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
