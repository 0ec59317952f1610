// SPDX-License-Identifier: Apache-2.0
#include <runnel/graph.hpp>

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "function/graph_functions.hpp"
#include "function/host_functions.hpp"
#include "slot/capture.hpp"
#include "slot/device_waits.hpp"
#include "slot/operations.hpp"
#include "slot/point.hpp"
#include "slot/reclaimer.hpp"
#include "slot/stream_call.hpp"
#include "timeline/event_node.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {

/// `own` is open, or directly behind the last launch, see needs_end(); empty before the first.
struct GraphState : DeferredWork {
  int device = 0;
  native::graph graph{};
  native::executable_graph executable{};
  std::shared_ptr<GraphFunctions> functions{};
  sync::Mutex launching{};    // the runtimes allow one launch of a graph at a time
  sync::Mutex graph_mutex{};  // A native graph is not thread-safe, not even for queries.
  // The runtime does not order the next launch after the last one if their streams differ.
  bool is_unordered = false;
};

namespace {

constexpr const char* launching = "launch a graph";
constexpr const char* beginning = "begin a capture";
constexpr const char* ending = "end a capture";
constexpr const char* asking = "ask for a graph's handle";

/// Destroys the graph, and then what its nodes use. Requires: its launches are complete.
void destroy(GraphState* state) noexcept {
  const std::unique_ptr<GraphState> owned{state};
  if (state->executable != nullptr)
    call_quietly(state->device,
                 [&] { return backend::executable_graph_destroy(state->executable); });
  if (state->graph != nullptr)
    call_quietly(state->device, [&] { return backend::graph_destroy(state->graph); });
}

/// Whether the graph's launches are known to be complete. Does not query a default stream, because
/// that could invalidate a capture.
bool is_complete(GraphState& state) noexcept {
  if (state.is_unknown || (!state.others.empty() && advance(state.others) != Progress::complete))
    return false;
  return internal_call([&] {
    if (state.own.ask() == Progress::complete) return true;
    const HandleLock locked{*state.own.slot()};
    return locked && !locked->is_default && is_known_idle(*state.own.slot());
  });
}

/// Destroys the graph on the service thread. If the completion of its launches can never be known,
/// everything but the host functions leaks.
void destroy_deferred(Deferred& deferred) noexcept {
  auto& state = static_cast<GraphState&>(deferred);
  if (state.is_unknown)
    state.functions->discard();
  else
    destroy(&state);
  count_ended(Count::ended_completions);
}

/// Destroys the graph after its launches: at once if they are complete.
void release_graph(GraphState* state) noexcept {
  const Release mode = release_mode();
  if (mode == Release::never) return;
  if (mode == Release::now && is_complete(*state)) return destroy(state);
  state->run = destroy_deferred;
  state->calls_program = true;
  count_function(Count::made_completions);
  run_after(*state);
}

struct ReleaseGraph {
  void operator()(GraphState* state) const noexcept { release_graph(state); }
};
using OwnedGraph = std::unique_ptr<GraphState, ReleaseGraph>;

void instantiate(GraphState& state, const char* operation) {
  check(internal_call(state.device, operation,
                      [&] { return backend::graph_instantiate(state.executable, state.graph); }),
        operation);
}

[[nodiscard]] backend::NodeKind kind_of(native::graph_node node, const char* operation) {
  backend::NodeKind kind{};
  check(backend::graph_node_kind(node, kind), operation);
  return kind;
}

/// Requires: graph_mutex is locked.
[[nodiscard]] size_t count_nodes(native::graph graph, const char* operation) {
  size_t count = 0;
  check(backend::graph_nodes(graph, nullptr, count), operation);
  return count;
}
/// Requires: graph_mutex is locked.
[[nodiscard]] std::vector<native::graph_node> nodes_of(native::graph graph, const char* operation) {
  size_t count = count_nodes(graph, operation);
  std::vector<native::graph_node> nodes(count);
  check(backend::graph_nodes(graph, nodes.data(), count), operation);
  return nodes;
}

/// Whether the runtime orders the graph's next launch after all that a launch enqueues.
bool is_ordered(const GraphState& state) noexcept {
  return backend::orders_graph_launches() && !state.functions->ends_launches();
}

/// Whether the end of the launch needs a mark: the runtime does not order the next launch after
/// it, or the stream is a thread's default stream, where another thread cannot record later.
bool needs_end(const GraphState& state, const Slot& slot) noexcept {
  return !is_ordered(state) || slot.thread != nullptr;
}

/// Stores the place of this launch. The earlier launch need not be kept: it completes before this
/// one.
void note_launch(GraphState& state, StreamKey stream) noexcept {
  const bool is_marked = needs_end(state, *stream.slot);
  if (state.own.stream() == stream && !is_marked) [[likely]]
    return;
  state.own = Point{stream};
  if (is_marked) internal_call([&] { state.own.record(); }, any_capture_seen());
}

/// The same for a launch that has failed: the runtime may have taken it, or a part of it.
void note_failed_launch(GraphState& state, StreamKey stream) noexcept try {
  state.others.emplace_back(stream);
  static_cast<void>(advance(state.others));
} catch (const std::bad_alloc&) {
  state.is_unknown = true;
}

void refuse_memory_nodes(GraphState& state) {
  const std::lock_guard lock{state.graph_mutex};
  for (const native::graph_node node : nodes_of(state.graph, launching))
    if (const backend::NodeKind kind = kind_of(node, launching);
        kind == backend::NodeKind::allocation || kind == backend::NodeKind::free)
      throw_error(
          errc::not_supported, launching,
          "memory is allocated or freed in the graph, which a graph within a graph cannot do");
}

/// Adds the graph as a node to the graph that the stream is being captured into.
void become_node(GraphState& state, const StreamCall& call) {
  // Other code's capture takes a graph that needs no owner.
  const std::shared_ptr<GraphFunctions> outer = state.functions->owns_anything()
                                                    ? require_own_capture(call, "graph")
                                                    : functions_of_capture(call);
  refuse_memory_nodes(state);
  const ScopedEvent event{[&] { return call.about(OperationKind::graph_launch); }};
  const std::lock_guard lock{state.graph_mutex};  // Not while a hook is called.
  if (outer != nullptr) return outer->capture(call, *state.functions, state.graph);
  const auto keep = [](void*, void (*)(void*), void* data) noexcept { return data; };
  call.check(backend::capture_graph(call.handle(), state.graph, keep, nullptr));
}

/// Makes the stream wait for the last launch, if that was on another stream and the runtime does
/// not order the two.
void wait_for_last_launch(GraphState& state, const StreamCall& call, StreamKey stream) {
  if (!state.is_unordered || !state.own || state.own.slot() == stream.slot) [[likely]]
    return;
  refuse_in_capture(call.slot(), launching, refusal::unordered_graph);
  if (state.own.make_wait(call.handle(), InCapture::never)) return;
  const ScopedWait wait{launching, {.device = state.device}};
  if (wait_for_device(state.device) == Progress::complete) return;
  throw_error(errc::capture, launching, "the stream of the last launch cannot be waited for now");
}

/// The capture that this thread has begun on the stream.
[[nodiscard]] OpenCapture require_capture(StreamKey stream) {
  OpenCapture capture = capture_begun_on(stream.id);
  if (!capture) throw_error(errc::capture, ending, "no capture was begun on this stream");
  if (capture.thread != std::this_thread::get_id())
    throw_error(errc::capture, ending, "the capture was begun on another thread: end it there");
  return capture;
}

/// Throws the reason why a capture yields no graph: unjoined work, or a call that broke it.
[[noreturn]] void throw_failed_capture(const OpenCapture& capture, bool is_broken,
                                       backend::status status) {
  if (is_broken && capture.broken_by != nullptr)
    throw_formatted(
        errc::capture, ending, status,
        "a call that could not %s has broken it: capture the work again without that call",
        capture.broken_by);
  throw_error(
      errc::capture, ending,
      is_broken
          ? "a call that cannot be captured has broken it: capture the work again without that call"
          : "work of another stream was not joined: let the captured stream wait for that stream "
            "before the end",
      status, backend::error_name(status));
}

/// Ends the native capture.
/// @throws errc::capture
[[nodiscard]] native::graph end_native(const StreamCall& call, const OpenCapture& capture) {
  uint64_t active = 0;
  call.check(backend::stream_capture_number(call.handle(), active));
  native::graph graph{};
  const backend::status s = end_native_capture(call.slot(), graph);
  close_capture(capture.begun_on.id);
  if (s == backend::ok) return graph;
  if (backend::classify(s) != errc::capture) throw_status(s, ending);
  backend::forget_error(s);
  throw_failed_capture(capture, active != capture.number, s);
}

const char* name_of(backend::NodeKind kind) noexcept {
  constexpr const char* names[] = {"kernel",     "copy", "fill",         "host function",
                                   "allocation", "free", "event record", "event wait",
                                   "graph",      "other"};
  return names[static_cast<size_t>(kind)];
}

/// Moves the work of `now` into the executable graph of `old`. False if the runtime cannot do that.
[[nodiscard]] bool update_executable(const GraphState& old, const GraphState& now,
                                     const char* operation) {
  const backend::status s = internal_call(
      old.device, operation, [&] { return backend::graph_update(old.executable, now.graph); });
  if (s == backend::ok) return true;
  if (backend::classify(s) != errc::not_supported) throw_status(s, operation);
  backend::forget_error(s);
  return false;
}

/// Ends the capture that this thread has begun on the stream. The graph is not instantiated yet.
[[nodiscard]] OwnedGraph take_captured(StreamRef stream) {
  const StreamCall call{stream, ending};
  const OpenCapture capture = require_capture(key_of(stream));
  struct Abandon {  // does nothing if the native capture has ended
    StreamKey stream;
    ~Abandon() { abandon_capture(stream); }
  } const abandon{capture.begun_on};
  OwnedGraph state{new GraphState};
  state->device = call.slot().device;
  state->functions = capture.functions;
  state->graph = end_native(call, capture);
  return state;
}

}  // namespace

Graph CaptureGuard::end() {
  ended_ = true;
  return Graph{take_captured(stream_).release()};
}

Graph CaptureGuard::instantiated(Graph graph) {
  detail::instantiate(*graph.state_, ending);
  return graph;
}

void CaptureGuard::abandon() noexcept {
  try {
    const StreamCall call{stream_, ending};
    abandon_capture(key_of(stream_));
  } catch (...) {  // The stream has ended, and its capture with it.
  }
}

}  // namespace detail

using namespace detail;

void begin_capture(StreamRef stream) {
  const StreamCall call{stream, beginning};
  if (is_legacy_default(call.slot()))
    throw_error(errc::capture, beginning,
                "the default stream cannot be captured: capture a stream of your own");
  refuse_in_capture(call.slot(), beginning, refusal::second_capture);
  note_capture();
  announce_capture({key_of(stream), call.slot().device, std::this_thread::get_id(),
                    std::make_shared<GraphFunctions>()});
  try {
    {
      const CaptureChangeLock alone{&call.slot()};
      const CaptureChangeLock unmarked{default_beside(call.slot()), true};
      call.check(backend::stream_begin_capture(call.handle(), backend::CaptureMode::own_only));
    }
    uint64_t number = 0;
    call.check(backend::stream_capture_number(call.handle(), number));
    if (number == 0)
      throw_error(errc::capture, beginning,
                  "a call of another thread has broken the capture as it began");
    number_capture(stream.id(), number);
  } catch (...) {  // The first call may have taken effect in spite of the error.
    discard_native_capture(call.slot());
    close_capture(stream.id());
    throw;
  }
}

Graph end_capture(StreamRef stream) {
  return CaptureGuard::instantiated(Graph{take_captured(stream).release()});
}

Graph::Graph(GraphState* state) noexcept : state_{state} { count_up(counters.graphs); }

GraphState& Graph::require(const char* operation) const {
  if (state_ == nullptr)
    throw_error(errc::invalid_handle, operation, "the graph is empty or was moved from");
  return *state_;
}

void Graph::launch(StreamRef stream) const {
  GraphState& state = require(launching);
  const StreamCall call{stream, launching};
  if (call.slot().device != state.device)
    throw_invalid_argument(launching, "the stream is of another device than the graph");
  if (is_capturing(call.slot(), launching)) [[unlikely]]
    return become_node(state, call);
  const StreamKey use = key_of(stream);
  const ScopedEvent event{[&] { return call.about(OperationKind::graph_launch); }};
  const std::lock_guard lock{state.launching};  // Not while a hook is called.
  wait_for_last_launch(state, call, use);
  try {
    state.functions->launch(call, state.executable);
  } catch (const Error&) {  // Without memory nothing was enqueued.
    note_failed_launch(state, use);
    throw;
  }
  // Only now: after a failure, an earlier launch on another stream may still run.
  note_launch(state, use);
  state.is_unordered = !is_ordered(state);
  if (is_observed()) [[unlikely]]
    state.functions->emit_events(call);
}

/// The old state keeps the old host functions until the running launches are complete. Its
/// executable graph continues with the new work.
bool Graph::take(Graph fresh) {
  constexpr const char* operation = "update a graph";
  GraphState& old = require(operation);
  GraphState& now = fresh.require(operation);
  if (old.device != now.device)
    throw_invalid_argument(operation, "the stream is of another device than the graph");
  now.others = old.others;
  now.is_unknown = old.is_unknown;
  const bool is_same = update_executable(old, now, operation);
  if (is_same) {
    std::swap(old.executable, now.executable);
    if (old.functions->is_shared()) now.functions->set_shared();
  } else {
    instantiate(now, operation);
  }
  now.own = old.own;
  now.is_unordered = !is_same || old.is_unordered;
  std::swap(state_, fresh.state_);
  return is_same;
}

void Graph::drop() noexcept {
  count_down(counters.graphs);
  release_graph(state_);
}

size_t Graph::node_count() const {
  constexpr const char* operation = "count the nodes of a graph";
  GraphState& state = require(operation);
  enter(operation);
  const std::lock_guard lock{state.graph_mutex};
  return count_nodes(state.graph, operation);
}

std::string Graph::dot() const {
  constexpr const char* operation = "draw a graph";
  GraphState& state = require(operation);
  enter(operation);
  const std::lock_guard lock{state.graph_mutex};
  const std::vector<native::graph_node> nodes = nodes_of(state.graph, operation);
  std::string text = "digraph runnel {\n";
  std::unordered_map<native::graph_node, size_t> numbers;
  for (const native::graph_node node : nodes) {
    const backend::NodeKind kind = kind_of(node, operation);
    const size_t number = numbers.emplace(node, numbers.size()).first->second;
    text += "  n" + std::to_string(number) + " [label=\"" + name_of(kind) + "\"];\n";
  }
  size_t count = 0;
  check(backend::graph_edges(state.graph, nullptr, nullptr, count), operation);
  std::vector<native::graph_node> from(count), to(count);
  check(backend::graph_edges(state.graph, from.data(), to.data(), count), operation);
  for (size_t i = 0; i < count; ++i)
    text +=
        "  n" + std::to_string(numbers[from[i]]) + " -> n" + std::to_string(numbers[to[i]]) + ";\n";
  return text + "}\n";
}

namespace {
[[nodiscard]] GraphState& give_out(GraphState& state) noexcept {
  state.functions->set_shared();
  return state;
}
}  // namespace

Device Graph::device() const { return Device{require("ask for a graph's device").device}; }
native::graph Graph::native() const { return give_out(require(asking)).graph; }
native::executable_graph Graph::native_executable() const {
  return give_out(require(asking)).executable;
}

}  // namespace runnel::inline RUNNEL_ABI
