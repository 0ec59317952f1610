// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_graphs
/// Work that is recorded once and launched many times, on any stream of its device. To launch a
/// graph costs about as much as to submit one kernel.
#pragma once

#include <runnel/current.hpp>
#include <runnel/native.hpp>
#include <runnel/stream.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

class Graph;
[[nodiscard]] Graph end_capture(StreamRef stream);
namespace detail {
struct GraphState;
class CaptureGuard;
}  // namespace detail

/// A node of a graph, as last_node() returns it: an operation whose arguments can be changed. It is
/// a plain value, which owns nothing.
class GraphNode {
 public:
  /// No node.
  GraphNode() noexcept = default;
  /// Whether there is a node.
  [[nodiscard]] bool is_valid() const noexcept { return handle_ != nullptr; }
  /// The vendor's handle, which lives as long as the graph, and until update() of the whole graph:
  /// for what only the runtime can do, as new parameters of a kernel by
  /// `cudaGraphExecKernelNodeSetParams(graph.native_executable(), node.native(), &parameters)`.
  [[nodiscard]] native::graph_node native() const noexcept { return handle_; }

 private:
  friend class Graph;
  friend GraphNode last_node(StreamRef stream);
  native::graph_node handle_{};
  std::uint64_t capture_ = 0;
  bool is_flat_ = false;
};
/// The node that the last operation became which was submitted to the captured stream: a copy, a
/// fill, a kernel, a host function or an event. Ask on the thread that has submitted it, before
/// anything else is submitted. @throws errc::capture if the stream is not being captured by the
/// library; errc::invalid_argument if its last operation was a wait that joins streams, or there
/// was none
[[nodiscard]] GraphNode last_node(StreamRef stream);

/// Owns a graph. The memory that its work uses must live as long as the graph, except what was
/// allocated in the capture. Several threads may launch one graph; its launches run one after the
/// other. Using a graph that was moved from throws `errc::invalid_handle`.
class Graph {
 public:
  /// Without work: every use of it throws errc::invalid_handle.
  Graph() noexcept = default;
  ///@{ The other object is empty afterwards.
  Graph(Graph&& other) noexcept : state_{std::exchange(other.state_, nullptr)} {}
  Graph& operator=(Graph&& other) noexcept {
    Graph taken{std::move(other)};
    std::swap(state_, taken.state_);
    return *this;
  }
  /// @} Returns at once; launches under way complete. The graph's host functions are destroyed
  /// after them, in the order of the stream of the last launch: a later `synchronize()` of that
  /// stream finds them destroyed. If that stream has ended, is being captured, or is another
  /// thread's default stream, they are destroyed some time after the last launch.
  ~Graph() {
    if (state_ != nullptr) drop();
  }

  /// Enqueues the work: it runs after the work submitted to the stream so far, after the graph's
  /// earlier launches, and before later work of the stream. The first exception that leaves one of
  /// its host functions is thrown by the next `synchronize()` of that stream. On a stream that is
  /// being captured, the graph becomes one node of the new graph, with the work and the functions
  /// that it has now: later changes of it do not count, and it may be dropped. Requires: launches
  /// of a graph and of those that it became a part of do not use the same memory at once; nothing
  /// orders them.
  /// @throws errc::invalid_argument for a stream of another device; in a capture
  /// errc::not_supported if memory is allocated or freed in the graph or a node is disabled, and
  /// errc::capture if other code has begun the capture
  void launch(StreamRef stream) const;
  /// The same on the current stream.
  void launch() const { launch(current_stream()); }

  /// Captures `work()` on the stream as `capture()` does, in place of the old work. True if the
  /// runtime could give the new arguments to the graph that it has, which is several times faster
  /// than to make a new one: the same operations in the same order, with other addresses, sizes,
  /// values or host functions. Launches under way keep the old work.
  /// @throws as capture(); errc::invalid_argument for a stream of another device
  template <std::invocable F>
  bool update(StreamRef stream, F&& work);

  /// New arguments for one node, which may be a copy, a fill, a host function or a kernel. `work()`
  /// is captured on the stream as `capture()` does, and has to be one operation of that kind:
  /// `graph.update(stream, node, [&] { copy(stream, x, other); })`. Launches under way keep the old
  /// arguments. A host function that is replaced is destroyed after the last launch that calls it.
  /// What keep() keeps in `work()` lives as long as the graph. @throws as capture();
  /// errc::invalid_handle if the node is of another graph, or of the work before an update() of the
  /// whole graph; errc::invalid_argument for other work; errc::not_supported if the runtime cannot
  /// change the node so: other kinds of memory, other forms of a copy, or a 2D fill of another
  /// size. Then the node is as before
  template <std::invocable F>
  void update(StreamRef stream, GraphNode node, F&& work);
  /// Disables a node, or enables it again: a disabled copy, fill, kernel or host function does
  /// nothing, from the next launch on. Launches under way are not affected. @throws
  /// errc::invalid_handle as update(); errc::not_supported for other nodes, and on HIP before 5.6
  /// for all but host functions
  void set_enabled(GraphNode node, bool enabled);

  /// Number of operations in the graph.
  [[nodiscard]] std::size_t node_count() const;
  /// The graph as a drawing in the language of Graphviz: `dot -Tsvg` makes a picture of it.
  [[nodiscard]] std::string dot() const;

  /// False for a graph without work, and once it was moved from.
  [[nodiscard]] bool is_valid() const noexcept { return state_ != nullptr; }
  /// The device whose streams can launch the graph.
  [[nodiscard]] Device device() const;
  ///@{ The vendor's handles. They live as long as the graph, and until update().
  [[nodiscard]] native::graph native() const;
  [[nodiscard]] native::executable_graph native_executable() const;
  ///@}

 private:
  friend Graph end_capture(StreamRef stream);
  friend class detail::CaptureGuard;
  explicit Graph(detail::GraphState* state) noexcept;
  [[nodiscard]] detail::GraphState& require(const char* operation) const;
  [[nodiscard]] bool take(Graph fresh);  // which cannot be launched yet
  void change(GraphNode node, GraphNode from, Graph fresh);
  void drop() noexcept;

  detail::GraphState* state_ = nullptr;
};

/// From now on, work that is submitted to the stream goes into a graph and does not run, and so
/// does the work of other streams once they wait for it. Copies of pageable memory, and queries and
/// waits for captured work, are refused by name, and leave the capture as it was. `capture()` is
/// the safer form: it ends the capture also after an exception. A capture that nobody has ended
/// ends, without a graph, with the last object that wraps the stream, and that of a thread's
/// default stream with the thread.
/// @throws errc::capture for the default stream, and for a stream that is being captured
void begin_capture(StreamRef stream);
/// @cond
template <detail::TemporaryStream S>
void begin_capture RUNNEL_REFUSED(
    "a temporary stream ends at once: give it a name, and keep it as long as what uses it", S&&);
/// @endcond
/// Ends the capture that this thread has begun on the stream. In every case no stream is captured
/// any more afterwards.
/// @throws errc::capture if none was begun here, if another stream's work was not joined (let this
/// stream wait for that one), and if a call has broken the capture
[[nodiscard]] Graph end_capture(StreamRef stream);

namespace detail {

/// Ends a capture that nobody wants any more.
class CaptureGuard {
 public:
  explicit CaptureGuard(StreamRef stream) : stream_{stream} { begin_capture(stream); }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;
  ~CaptureGuard() {
    if (!ended_) abandon();
  }
  /// Calls the function with the captured stream as the current one, and ends the capture. The
  /// graph cannot be launched yet.
  template <class F>
  [[nodiscard]] Graph record(F&& work) {
    {
      const StreamGuard on{stream_};
      std::forward<F>(work)();
    }
    return end();
  }
  /// Makes a graph that can be launched.
  [[nodiscard]] static Graph instantiated(Graph graph);

 private:
  [[nodiscard]] Graph end();
  void abandon() noexcept;
  StreamRef stream_;
  bool ended_ = false;
};

}  // namespace detail

/// Calls `work()` with `stream` as the current stream, and returns what it submits as a graph;
/// nothing runs yet. After an exception the streams are as if nothing had been captured. @throws
/// what begin_capture() and end_capture() throw, and what `work()` throws
template <std::invocable F>
[[nodiscard]] Graph capture(StreamRef stream, F&& work) {
  return detail::CaptureGuard::instantiated(
      detail::CaptureGuard{stream}.record(std::forward<F>(work)));
}

template <std::invocable F>
void Graph::update(StreamRef stream, GraphNode node, F&& work) {
  GraphNode from;
  Graph fresh = detail::CaptureGuard{stream}.record([&] {
    std::forward<F>(work)();
    from = last_node(stream);
  });
  change(node, from, std::move(fresh));
}

template <std::invocable F>
bool Graph::update(StreamRef stream, F&& work) {
  return take(detail::CaptureGuard{stream}.record(std::forward<F>(work)));
}

}  // namespace runnel::inline RUNNEL_ABI
