// SPDX-License-Identifier: Apache-2.0
/// Graphs: what a capture records, and what a launch submits. Requires for all functions: the
/// engine's mutex is held.
#pragma once

#include "engine.hpp"
#include "vendor.hpp"

namespace standin {

struct GraphNode {
  Work work;
  int device = 0;
  Position before;                 // the nodes that come before this one
  Number handle;                   // 0 in an executable graph
  std::shared_ptr<Graph> child;    // what a node of the kind `graph` launches
  std::shared_ptr<void> reserved;  // keeps the addresses of an allocation
  Number event;                    // that a node records or waits for
};

/// A node comes after all nodes that it waits for.
struct Graph {
  std::vector<GraphNode> nodes;
  Number handle;                               // of a graph within a graph
  std::vector<std::shared_ptr<void>> objects;  // user objects, which its copies keep, too
};
using GraphPtr = std::shared_ptr<Graph>;

struct ExecutableGraph {
  GraphPtr graph;  // a copy: the graph that it was made of may be destroyed
  bool frees_at_launch = false;
  OperationPtr last;  // the end of the last launch
};
using ExecutablePtr = std::shared_ptr<ExecutableGraph>;

/// The place of a node, for the calls that are given only the node.
struct NodePlace {
  GraphPtr graph;
  size_t number = 0;
};

/// Appends a node that comes after `before`, and returns its number.
size_t append(const GraphPtr& graph, GraphNode node);
/// Appends a node after all that the captured stream has submitted.
void add_node(Stream& stream, Work work, GraphPtr child = nullptr);
/// Adds nodes to what the stream's next operation waits for.
void wait_for_nodes(Stream& stream, const Position& nodes);
/// A copy with copies of the graphs within it. `named`: its nodes, and those graphs, have handles.
GraphPtr clone(const Graph& graph, bool named);
/// Whether another node waits for this one.
bool has_successor(const Graph& graph, size_t node);
///@{ A graph within a graph has a handle, too, but is no graph of its own.
void name_child(const GraphPtr& child);
void forget_child(Graph& child);
///@}
/// Takes the graph's handle and those of its nodes out of use.
void forget(Number handle, Graph& graph);
bool has_allocations(const Graph& graph);
/// Returns a Code.
int launch(ExecutableGraph& executable, Stream& stream);

}  // namespace standin
