// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_graphs
/// Graphs: work that is recorded once and launched many times, on any stream of its device.
/// Launching a graph takes about as long as submitting one kernel.
#pragma once

#include <runnel/current.hpp>

#include <concepts>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

class Graph;
[[nodiscard]] Graph end_capture(StreamRef stream);
namespace detail {
struct GraphState;
class CaptureGuard;
}  // namespace detail

/// Owns a graph. The memory that its work uses must live as long as the graph, except memory that
/// was allocated in the capture. Several threads may launch one graph; its launches run one after
/// the other. Using a moved-from graph throws `errc::invalid_handle`.
class Graph {
 public:
  /// An empty graph: every use of it throws errc::invalid_handle.
  Graph() noexcept = default;
  ///@{ The other object is empty afterwards.
  Graph(Graph&& other) noexcept : state_{std::exchange(other.state_, nullptr)} {}
  Graph& operator=(Graph&& other) noexcept {
    Graph taken{std::move(other)};
    std::swap(state_, taken.state_);
    return *this;
  }
  /// @} Returns at once; launches that were enqueued complete. The graph's host functions are
  /// destroyed in this call if the launches are complete; otherwise a thread of the library
  /// destroys them soon after, and quiesce_for() waits for that.
  ~Graph() {
    if (state_ != nullptr) drop();
  }

  /// Enqueues the work: it runs after the work submitted to the stream so far, after the graph's
  /// earlier launches, and before later work of the stream. The next `synchronize()` of the stream
  /// throws the first exception that has left one of the graph's host functions.
  ///
  /// On a stream that is being captured, the graph becomes one node of the new graph, with its
  /// current work and functions. This graph may then be changed or destroyed. Requires: launches of
  /// this graph and of graphs that contain it use no memory in common, or the program orders them.
  /// @throws errc::invalid_argument for a stream of another device. In a capture
  /// errc::not_supported if the graph allocates or frees memory. In a capture that other code has
  /// begun errc::capture for a graph with host functions, external events or objects that were
  /// passed to keep().
  void launch(StreamRef stream) const;
  /// The same on the current stream.
  void launch() const { launch(current_stream()); }

  /// Captures `work()` on the stream as `capture()` does, and replaces the graph's work by it.
  /// Returns true if the runtime could update the existing executable graph, which is several times
  /// faster than instantiating a new one: this is possible for the same operations in the same
  /// order, with other addresses, sizes, values or host functions. Launches that were enqueued
  /// before keep the old work.
  /// @throws as capture(); errc::invalid_argument for a stream of another device
  template <std::invocable F>
  bool update(StreamRef stream, F&& work);

  /// The number of operations in the graph.
  [[nodiscard]] std::size_t node_count() const;
  /// A description of the graph in Graphviz's language: `dot -Tsvg` draws it.
  [[nodiscard]] std::string dot() const;

  /// False for an empty or moved-from graph.
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
  [[nodiscard]] bool take(Graph fresh);  // Requires: `fresh` is not instantiated.
  void drop() noexcept;

  detail::GraphState* state_ = nullptr;
};

/// Begins a capture: from now on, work that is submitted to the stream is recorded into a graph and
/// does not run. The same holds for other streams once they wait for captured work. Copies of
/// pageable memory, and queries and waits for captured work, are refused with an error that names
/// them, and do not break the capture. `capture()` is safer: it ends the capture also after an
/// exception. If end_capture() is not called, the capture ends, without a graph, when the last
/// object that wraps the stream is destroyed, unless a host function destroys it and the stream is
/// borrowed; the capture of a thread's default stream ends with the thread.
/// @throws errc::capture for the default stream, and for a stream that is being captured
void begin_capture(StreamRef stream);
/// @cond
template <detail::TemporaryStream S>
void begin_capture RUNNEL_REFUSED_TEMPORARY_STREAM(S&&);
/// @endcond
/// Ends the capture that this thread has begun on the stream, and returns its graph. Also if it
/// throws, no stream takes part in the capture any more.
/// @throws errc::capture if this thread has begun no capture on the stream, if the work of another
/// stream was not joined (let this stream wait for that one), and if a call has broken the capture
[[nodiscard]] Graph end_capture(StreamRef stream);

namespace detail {

/// Begins a capture. Unless record() ends it, the destructor ends the capture and destroys its
/// graph.
class CaptureGuard {
 public:
  explicit CaptureGuard(StreamRef stream) : stream_{stream} { begin_capture(stream); }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;
  ~CaptureGuard() {
    if (!ended_) abandon();
  }
  /// Calls the function with the captured stream as the current stream, and ends the capture. The
  /// graph is not instantiated yet.
  template <class F>
  [[nodiscard]] Graph record(F&& work) {
    {
      const StreamGuard on{stream_};
      std::forward<F>(work)();
    }
    return end();
  }
  /// Instantiates the graph, so that it can be launched.
  [[nodiscard]] static Graph instantiated(Graph graph);

 private:
  [[nodiscard]] Graph end();
  void abandon() noexcept;
  StreamRef stream_;
  bool ended_ = false;
};

}  // namespace detail

/// Calls `work()` with `stream` as the current stream, and returns a graph of the work that it
/// submits, which does not run yet. After an exception the streams are as if nothing had been
/// captured. @throws what begin_capture() and end_capture() throw, and what `work()` throws
template <std::invocable F>
[[nodiscard]] Graph capture(StreamRef stream, F&& work) {
  return detail::CaptureGuard::instantiated(
      detail::CaptureGuard{stream}.record(std::forward<F>(work)));
}

template <std::invocable F>
bool Graph::update(StreamRef stream, F&& work) {
  return take(detail::CaptureGuard{stream}.record(std::forward<F>(work)));
}

}  // namespace runnel::inline RUNNEL_ABI
