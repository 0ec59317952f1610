// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <algorithm>

#include "calls.hpp"
#include "state.hpp"

namespace standin {

size_t append(const GraphPtr& graph, GraphNode node) {
  const size_t number = graph->nodes.size();
  if (node.work.kind == Kind::allocation)
    node.reserved = std::shared_ptr<void>{node.work.memory,
                                          [](void* memory) { state().blocks.orphan(memory); }};
  node.handle = state().nodes.add(std::make_shared<NodePlace>(NodePlace{graph, number}));
  graph->nodes.push_back(std::move(node));
  return number;
}

void add_node(Stream& stream, Work work, GraphPtr child) {
  GraphNode node{std::move(work), stream.device, stream.position, 0, std::move(child), nullptr, 0};
  stream.position = {append(stream.capture->graph, std::move(node))};
}

void wait_for_nodes(Stream& stream, const Position& nodes) {
  for (const size_t node : nodes)
    if (std::ranges::find(stream.position, node) == stream.position.end())
      stream.position.push_back(node);
}

GraphPtr clone(const Graph& graph, bool named) {
  State& now = state();
  auto copy = std::make_shared<Graph>(graph);
  for (size_t i : range(copy->nodes.size())) {
    GraphNode& node = copy->nodes[i];
    if (node.child != nullptr) node.child = clone(*node.child, named);
    if (named) node.handle = now.nodes.add(std::make_shared<NodePlace>(NodePlace{copy, i}));
    if (named && node.child != nullptr) name_child(node.child);
  }
  return copy;
}

bool has_successor(const Graph& graph, size_t node) {
  return std::ranges::any_of(graph.nodes, [&](const GraphNode& other) {
    return std::ranges::find(other.before, node) != other.before.end();
  });
}

void name_child(const GraphPtr& child) {
  child->handle = state().graphs.add(child);
  ++state().children;
}

void forget_child(Graph& child) {
  --state().children;
  forget(child.handle, child);
}

void forget(Number handle, Graph& graph) {
  State& now = state();
  for (GraphNode& node : graph.nodes) {
    now.nodes.remove(node.handle);
    if (node.child != nullptr) forget_child(*node.child);
  }
  now.graphs.remove(handle);
}

bool has_allocations(const Graph& graph) {
  return std::ranges::any_of(
      graph.nodes, [](const GraphNode& node) { return node.work.kind == Kind::allocation; });
}

namespace {

bool concerns(const Graph& graph, Kind kind, const void* memory) {
  return std::ranges::any_of(graph.nodes, [&](const GraphNode& node) {
    return node.work.kind == kind && node.work.memory == memory;
  });
}

/// From the launch on, the graph's memory is in use. Memory that the last launch left behind is
/// freed, and so is in use already.
int begin_uses(const ExecutableGraph& executable) {
  Blocks& blocks = state().blocks;
  std::vector<void*> begun;
  for (const GraphNode& node : executable.graph->nodes) {
    void* const memory = node.work.memory;
    if (node.work.kind == Kind::free && !concerns(*executable.graph, Kind::allocation, memory))
      blocks.set_kept(memory, false);
    if (node.work.kind != Kind::allocation) continue;
    const bool left = blocks.of(memory).kept;
    const bool begins = !left && blocks.begin_use(memory);
    if (begins) begun.push_back(memory);
    if (begins || (left && executable.frees_at_launch)) {
      blocks.set_kept(memory, !concerns(*executable.graph, Kind::free, memory));
      continue;
    }
    for (void* const block : begun) blocks.release(block);
    return left ? invalid_value : out_of_memory;
  }
  return ok;
}

/// Overwrites what the graph writes, but for what another node of it reads or writes, too.
void poison_destinations(const Graph& graph) {
  for (const GraphNode& node : graph.nodes) {
    if (node.work.poison == nullptr) continue;
    const bool alone = std::ranges::none_of(graph.nodes, [&](const GraphNode& other) {
      if (&other == &node) return false;
      return other.work.opaque || other.child != nullptr ||
             std::ranges::any_of(other.work.touches,
                                 [&](Range range) { return overlap(range, node.work.touches[0]); });
    });
    if (alone) poison_if_unused(node.work);
  }
}

/// Whether every event of the graph lives.
bool has_its_events(const Graph& graph) {
  return std::ranges::all_of(graph.nodes, [](const GraphNode& node) {
    return (node.event.value == 0 || state().events.find(node.event) != nullptr) &&
           (node.child == nullptr || has_its_events(*node.child));
  });
}

/// An event's record is made at the launch, and a node waits for the record that is current then.
void take_event(const GraphNode& node, const OperationPtr& operation,
                std::vector<OperationPtr>& before) {
  if (node.event.value == 0) return;
  const auto event = state().events.find(node.event);
  if (node.work.kind == Kind::event_wait) {
    if (event->record != nullptr) before.push_back(event->record);
    return;
  }
  event->record = operation;
  event->capture = nullptr;
}

/// Submits the graph's work, as the stream's, after `start`. Returns what ends it.
std::vector<OperationPtr> submit_nodes(const Graph& graph, uint64_t stream,
                                       const std::vector<OperationPtr>& start) {
  std::vector<OperationPtr> operations;
  std::vector<bool> last(graph.nodes.size(), true);
  for (const GraphNode& node : graph.nodes) {
    std::vector<OperationPtr> before;
    for (const size_t earlier : node.before) {
      before.push_back(operations[earlier]);
      last[earlier] = false;
    }
    if (before.empty()) before = start;
    if (node.child != nullptr) before = submit_nodes(*node.child, stream, before);
    auto operation = operation_of(node.work);
    operations.push_back(operation);
    take_event(node, operation, before);
    engine().submit_unordered(node.device, stream, std::move(operation), before);
  }
  std::vector<OperationPtr> ends = start;  // of a graph without nodes
  for (size_t i : range(operations.size()))
    if (last[i]) ends.push_back(operations[i]);
  return ends;
}

}  // namespace

int launch(ExecutableGraph& executable, Stream& stream) {
  if (stream.capturing()) {
    Work work;
    work.kind = Kind::graph;
    const GraphPtr child = clone(*executable.graph, true);
    name_child(child);
    add_node(stream, std::move(work), child);
    return ok;
  }
  if (!has_its_events(*executable.graph)) return invalid_value;
  const int code = begin_uses(executable);
  if (code != ok) return code;
  poison_destinations(*executable.graph);
  const auto start = operation_of();
  std::vector<OperationPtr> before;
  if (vendor::orders_graph_launches) before.push_back(executable.last);
  engine().submit(stream, start, before);
  // The user objects live until the launch is complete.
  const auto end = operation_of({.run = [graph = executable.graph]() mutable { graph = nullptr; }});
  const std::vector<OperationPtr> ends = submit_nodes(*executable.graph, stream.id, {start});
  executable.last = end;
  engine().submit(stream, end, ends);
  return ok;
}

}  // namespace standin
