// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_graphs
/// Work that is recorded once and launched many times, on any stream of its device. To launch a graph costs about as much as to submit one
/// kernel.
#pragma once

#include <runnel/current.hpp>
#include <runnel/native.hpp>
#include <runnel/stream.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

class Graph;
[[nodiscard]] Graph end_capture(StreamRef stream);
namespace detail {
struct GraphState;
class CaptureGuard;
}  // namespace detail

/// Owns a graph. The memory that its work uses must live as long as the graph, except what was allocated in the capture. Several threads
/// may launch one graph; its launches run one after the other. Using a graph that was moved from throws `errc::invalid_handle`.
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
  ///@}
  /// Returns at once; launches under way complete. The graph's host functions are destroyed after them, in the order of the stream of the
  /// last launch: a later `synchronize()` of that stream finds them destroyed. If that stream has ended, is being captured, or is another
  /// thread's default stream, they are destroyed some time after the last launch.
  ~Graph() {
    if (state_ != nullptr) drop();
  }

  /// Enqueues the work: it runs after the work submitted to the stream so far, after the graph's earlier launches, and before later work of
  /// the stream. The first exception that leaves one of its host functions is thrown by the next `synchronize()` of that stream.
  /// @throws errc::invalid_argument for a stream of another device, errc::capture for a stream that is being captured
  void launch(StreamRef stream) const;
  /// The same on the current stream.
  void launch() const { launch(current_stream()); }

  /// Captures `work()` on the stream as `capture()` does, in place of the old work. True if the runtime could give the new arguments to the
  /// graph that it has, which is several times faster than to make a new one: the same operations in the same order, with other addresses,
  /// sizes, values or host functions. Launches under way keep the old work.
  /// @throws as capture(); errc::invalid_argument for a stream of another device
  template <std::invocable F>
  bool update(StreamRef stream, F&& work);

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
  void drop() noexcept;

  detail::GraphState* state_ = nullptr;
};

/// From now on, work that is submitted to the stream goes into a graph and does not run, and so does the work of other streams once they
/// wait for it. Copies of pageable memory, and queries and waits for captured work, are refused by name, and leave the capture as it was.
/// `capture()` is the safer form: it ends the capture also after an exception. A capture that nobody has ended ends, without a graph, with
/// the last object that wraps the stream, and that of a thread's default stream with the thread.
/// @throws errc::capture for the default stream, and for a stream that is being captured
void begin_capture(StreamRef stream);
/// @cond
template <detail::TemporaryStream S>
void begin_capture RUNNEL_REFUSED("a temporary stream ends at once: give it a name, and keep it as long as what uses it", S&&);
/// @endcond
/// Ends the capture that this thread has begun on the stream. In every case no stream is captured any more afterwards.
/// @throws errc::capture if none was begun here, if another stream's work was not joined (let this stream wait for that one), and if a call
/// has broken the capture
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
  /// Calls the function with the captured stream as the current one, and ends the capture. The graph cannot be launched yet.
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

/// Calls `work()` with `stream` as the current stream, and returns what it submits as a graph; nothing runs yet. After an exception the
/// streams are as if nothing had been captured. @throws what begin_capture() and end_capture() throw, and what `work()` throws
template <std::invocable F>
[[nodiscard]] Graph capture(StreamRef stream, F&& work) {
  return detail::CaptureGuard::instantiated(detail::CaptureGuard{stream}.record(std::forward<F>(work)));
}

template <std::invocable F>
bool Graph::update(StreamRef stream, F&& work) {
  return take(detail::CaptureGuard{stream}.record(std::forward<F>(work)));
}

}  // namespace runnel::inline RUNNEL_ABI
