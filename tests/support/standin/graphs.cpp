// SPDX-License-Identifier: Apache-2.0
/// The calls for graphs and executable graphs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "calls.hpp"

using namespace standin;

namespace {

GraphPtr graph_of(GraphHandle handle) { return state().graphs.find(handle); }

ExecutablePtr executable_of(ExecutableHandle handle) { return state().executables.find(handle); }

vendor::NodeType type_of(Kind kind) {
  switch (kind) {
    case Kind::copy:
#if defined STANDIN_HIP && HIP_VERSION < 50300000
      return hipGraphNodeTypeMemcpy1D;
#else
      return API(GraphNodeTypeMemcpy);
#endif
    case Kind::fill:
      return API(GraphNodeTypeMemset);
    case Kind::kernel:
      return API(GraphNodeTypeKernel);
    case Kind::host_function:
      return API(GraphNodeTypeHost);
#if !defined STANDIN_HIP || HIP_VERSION >= 50500000
    case Kind::allocation:
      return API(GraphNodeTypeMemAlloc);
    case Kind::free:
      return API(GraphNodeTypeMemFree);
#endif
    case Kind::graph:
      return API(GraphNodeTypeGraph);
    case Kind::event_record:
      return API(GraphNodeTypeEventRecord);
    case Kind::event_wait:
      return API(GraphNodeTypeWaitEvent);
    default:
      return API(GraphNodeTypeEmpty);
  }
}

/// Stores at most `count` of the values. Without a place for them: how many there are.
template <class Value>
void store(const std::vector<Value>& values, Value* to, size_t& count) {
  if (to == nullptr) {
    count = values.size();
    return;
  }
  const size_t stored = std::min(count, values.size());
  std::copy_n(values.begin(), stored, to);
  std::fill(to + stored, to + count, nullptr);
  count = stored;
}

/// The vendors forbid that two threads use one graph at a time, even in calls that only read. The
/// program ends where that happens.
class OneThread {
 public:
  explicit OneThread(GraphHandle graph) : graph_{graph} {
    {
      const std::lock_guard lock{mutex};
      const bool is_alone = std::ranges::find(used, graph_) == used.end();
      used.push_back(graph_);
      if (!is_alone) {
        std::fputs("stand-in: two threads use one graph at a time\n", stderr);
        std::abort();
      }
    }
    std::this_thread::yield();  // so that another thread has a chance to come
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    const std::lock_guard lock{mutex};
    used.erase(std::ranges::find(used, graph_));
  }

 private:
  static inline std::mutex mutex;
  // never destroyed: threads may call while the process exits
  static inline auto& used = *new std::vector<GraphHandle>;
  GraphHandle graph_;
};

Error list_edges(const char* name, GraphHandle handle, NodeHandle* from, NodeHandle* to,
                 size_t* count) {
  const OneThread alone{handle};
  const auto body = [&] {
    const GraphPtr graph = graph_of(handle);
    if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr))
      return invalid_value;
    std::vector<NodeHandle> earlier, later;
    for (const GraphNode& node : graph->nodes)
      for (const size_t before : node.before) {
        earlier.push_back(graph->nodes[before].handle);
        later.push_back(node.handle);
      }
    size_t room = *count;
    store(earlier, from, room);
    store(later, to, *count);
    return ok;
  };
  return call(body, name);
}

/// Adds a node after the nodes `before`.
int add(NodeHandle* node, const GraphPtr& graph, const NodeHandle* before, size_t count,
        GraphNode made) {
  for (size_t i : range(count)) {
    const auto place = state().nodes.find(before[i]);
    if (place == nullptr || place->graph != graph) return invalid_value;
    made.before.push_back(place->number);
  }
  *node = graph->nodes[append(graph, std::move(made))].handle;
  return ok;
}

int add_event_node(NodeHandle* node, GraphHandle handle, const NodeHandle* before, size_t count,
                   EventHandle event, Kind kind) {
  const GraphPtr graph = graph_of(handle);
  const auto found = state().events.find(event);
  if (graph == nullptr || node == nullptr || found == nullptr) return invalid_value;
  GraphNode made;
  made.work.kind = kind;
  made.device = found->device;
  made.event = event;
  return add(node, graph, before, count, std::move(made));
}

/// Whether an executable graph can take over the other's arguments. Memory that a graph allocates
/// has a place of its own in each.
bool same_shape(const Graph& one, const Graph& other) {
  return !has_allocations(one) &&
         std::ranges::equal(one.nodes, other.nodes, [](const GraphNode& a, const GraphNode& b) {
           return a.work.kind == b.work.kind && a.work.shape == b.work.shape &&
                  a.device == b.device && a.before == b.before &&
                  (a.child == nullptr || same_shape(*a.child, *b.child));
         });
}

int update(ExecutableHandle executable, GraphHandle graph) {
  const ExecutablePtr changed = executable_of(executable);
  const GraphPtr from = graph_of(graph);
  if (changed == nullptr || from == nullptr) return invalid_value;
  if (!same_shape(*changed->graph, *from)) return graph_update_failure;
  changed->graph = clone(*from, false);
  return ok;
}

bool is_running(const ExecutableGraph& executable) {
  return executable.last != nullptr && !executable.last->done;
}

int destroy(ExecutableHandle handle) {
  State& now = state();
  std::erase_if(now.dying,
                [](const ExecutablePtr& executable) { return !is_running(*executable); });
  const ExecutablePtr executable = executable_of(handle);
  if (executable == nullptr || !now.executables.remove(handle)) return invalid_value;
  if (!is_running(*executable)) return ok;
  if (!vendor::running_graphs_may_be_destroyed && !now.sticky) {  // on a lost device nothing runs
    std::fputs(
        "stand-in: an executable graph is destroyed while it runs: AMD's runtime breaks here\n",
        stderr);
    std::abort();
  }
  now.dying.push_back(executable);
  return ok;
}

void set_function(Work& work, const API(HostNodeParams) & given) {
  work.function = given.fn;
  work.data = given.userData;
  work.run = [function = given.fn, data = given.userData] { function(data); };
}

GraphNode* node_of(NodeHandle handle) {
  const auto place = state().nodes.find(handle);
  return place == nullptr ? nullptr : &place->graph->nodes[place->number];
}

}  // namespace

extern "C" {

Error API(GraphGetNodes)(GraphHandle handle, NodeHandle* nodes, size_t* count) {
  const OneThread alone{handle};
  return call([&] {
    const GraphPtr graph = graph_of(handle);
    if (graph == nullptr || count == nullptr) return invalid_value;
    std::vector<NodeHandle> all;
    for (const GraphNode& node : graph->nodes) all.push_back(node.handle);
    store(all, nodes, *count);
    return ok;
  });
}

Error API(GraphNodeGetType)(NodeHandle handle, vendor::NodeType* type) {
  return call([&] {
    const GraphNode* const node = node_of(handle);
    if (node == nullptr || type == nullptr) return invalid_value;
    *type = type_of(node->work.kind);
    return ok;
  });
}

Error API(GraphDestroy)(GraphHandle handle) {
  return call(Call::releases, [&] {
    const GraphPtr graph = graph_of(handle);
    if (graph == nullptr) return invalid_value;
    forget(handle, *graph);
    return ok;
  });
}

Error API(GraphInstantiateWithFlags)(ExecutableHandle* executable, GraphHandle handle,
                                     unsigned long long flags) {
  return call(Call::makes, [&] {
    const GraphPtr graph = graph_of(handle);
    if (graph == nullptr || executable == nullptr || flags > 1) return invalid_value;
    auto made = std::make_shared<ExecutableGraph>();
    made->graph = clone(*graph, false);
    made->frees_at_launch = flags == API(GraphInstantiateFlagAutoFreeOnLaunch);
    *executable = state().executables.add(std::move(made));
    return ok;
  });
}

#if defined STANDIN_CUDA || HIP_VERSION >= 50300000
// An object has one reference, which a graph takes over.
Error API(UserObjectCreate)(API(UserObject_t) * object, void* data, API(HostFn_t) destroy,
                            unsigned int references, unsigned int flags) {
  return call(Call::makes, [&] {
    if (object == nullptr || destroy == nullptr || references != 1 ||
        flags != API(UserObjectNoDestructorSync))
      return invalid_value;
    const auto destroy_elsewhere = [destroy](void* owned) {
      // CUDA calls it on a thread of its own, where the runtime may not be called.
      std::thread{[=] {
        inside_host_function() = true;
        destroy(owned);
      }}.detach();
    };
    *object =
        reinterpret_cast<API(UserObject_t)>(new std::shared_ptr<void>{data, destroy_elsewhere});
    return ok;
  });
}

Error API(UserObjectRelease)(API(UserObject_t) object, unsigned int references) {
  return call(Call::releases, [&] {
    if (references != 1) return invalid_value;
    delete reinterpret_cast<std::shared_ptr<void>*>(object);
    return ok;
  });
}

Error API(GraphRetainUserObject)(GraphHandle handle, API(UserObject_t) object,
                                 unsigned int references, unsigned int flags) {
  return call(Call::makes, [&] {
    const GraphPtr graph = graph_of(handle);
    if (graph == nullptr || references != 1 || flags != API(GraphUserObjectMove))
      return invalid_value;
    const std::unique_ptr<std::shared_ptr<void>> moved{
        reinterpret_cast<std::shared_ptr<void>*>(object)};
    graph->objects.push_back(*moved);
    return ok;
  });
}
#endif

Error API(GraphLaunch)(ExecutableHandle handle, StreamHandle on) {
  return call(work_on(on, [=](Stream& stream) {
    const ExecutablePtr executable = executable_of(handle);
    if (executable == nullptr) return invalid_value;
    // Seen on an H200 (CUDA 13.0).
    if (stream.capturing()) return break_capture(*stream.capture, capture_unsupported);
    return launch(*executable, stream);
  }));
}

Error API(GraphExecDestroy)(ExecutableHandle handle) {
  return call(Call::releases, [&] { return destroy(handle); });
}

// Only the newest node of a graph can be destroyed here.
Error API(GraphDestroyNode)(NodeHandle handle) {
  return call(Call::releases, [&] {
    State& now = state();
    const auto place = now.nodes.find(handle);
    if (place == nullptr || place->number + 1 != place->graph->nodes.size()) return invalid_value;
    if (const GraphPtr child = place->graph->nodes.back().child) forget_child(*child);
    place->graph->nodes.pop_back();
    now.nodes.remove(handle);
    return ok;
  });
}

Error API(GraphAddEventRecordNode)(NodeHandle* node, GraphHandle graph, const NodeHandle* before,
                                   size_t count, EventHandle event) {
  return call(Call::makes, [&] {
    return add_event_node(node, graph, before, count, event, Kind::event_record);
  });
}

Error API(GraphAddEventWaitNode)(NodeHandle* node, GraphHandle graph, const NodeHandle* before,
                                 size_t count, EventHandle event) {
  return call(Call::makes,
              [&] { return add_event_node(node, graph, before, count, event, Kind::event_wait); });
}

Error API(GraphAddChildGraphNode)(NodeHandle* node, GraphHandle handle, const NodeHandle* before,
                                  size_t count, GraphHandle child) {
  return call(Call::makes, [&] {
    const GraphPtr graph = graph_of(handle);
    const GraphPtr added = graph_of(child);
    if (graph == nullptr || node == nullptr || added == nullptr || has_allocations(*added))
      return invalid_value;
    GraphNode made;
    made.work.kind = Kind::graph;
    made.device = this_thread().device;
    made.child = clone(*added, true);
    name_child(made.child);
    return add(node, graph, before, count, std::move(made));
  });
}

Error API(GraphChildGraphNodeGetGraph)(NodeHandle handle, GraphHandle* found) {
  return call([&] {
    const GraphNode* const node = node_of(handle);
    if (node == nullptr || node->child == nullptr || found == nullptr) return invalid_value;
    *found = node->child->handle;
    return ok;
  });
}

Error API(GraphHostNodeSetParams)(NodeHandle handle, const API(HostNodeParams) * given) {
  return call([&] {
    GraphNode* const node = node_of(handle);
    if (node == nullptr || node->work.kind != Kind::host_function || given == nullptr)
      return invalid_value;
    set_function(node->work, *given);
    return ok;
  });
}

Error API(GraphHostNodeGetParams)(NodeHandle handle, API(HostNodeParams) * found) {
  return call([&] {
    const GraphNode* const node = node_of(handle);
    if (node == nullptr || node->work.kind != Kind::host_function || found == nullptr)
      return invalid_value;
    *found = {node->work.function, node->work.data};
    return ok;
  });
}

#ifdef STANDIN_CUDA

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  return call([&] {
    const int code = update(executable, graph);
    result->result =
        code == ok ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    return code;
  });
}
#endif

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData*, size_t* count) {
  return list_edges(__func__, graph, from, to, count);
}
#else
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              size_t* count) {
  return list_edges(__func__, graph, from, to, count);
}
#if CUDART_VERSION >= 12030
cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                 cudaGraphEdgeData*, size_t* count) {
  return list_edges(__func__, graph, from, to, count);
}
#endif
#endif

#else

hipError_t hipGraphExecUpdate(hipGraphExec_t executable, hipGraph_t graph, hipGraphNode_t*,
                              hipGraphExecUpdateResult* result) {
  return call([&] {
    const int code = update(executable, graph);
    *result = code == ok ? hipGraphExecUpdateSuccess : hipGraphExecUpdateErrorTopologyChanged;
    return code;
  });
}

hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to,
                            size_t* count) {
  return list_edges(__func__, graph, from, to, count);
}

hipError_t hipGraphNodeGetDependentNodes(hipGraphNode_t handle, hipGraphNode_t* nodes,
                                         size_t* count) {
  return call([&] {
    const auto place = state().nodes.find(handle);
    if (place == nullptr || count == nullptr) return invalid_value;
    std::vector<hipGraphNode_t> later;
    for (const GraphNode& node : place->graph->nodes)
      if (std::ranges::find(node.before, place->number) != node.before.end())
        later.push_back(node.handle);
    store(later, nodes, *count);
    return ok;
  });
}

hipError_t hipGraphAddHostNode(hipGraphNode_t* node, hipGraph_t handle,
                               const hipGraphNode_t* before, size_t count,
                               const hipHostNodeParams* what) {
  return call(Call::makes, [&] {
    const GraphPtr graph = graph_of(handle);
    if (graph == nullptr || node == nullptr || what == nullptr || what->fn == nullptr)
      return invalid_value;
    GraphNode made;
    made.work.kind = Kind::host_function;
    made.work.opaque = true;
    set_function(made.work, *what);
    made.device = this_thread().device;
    return add(node, graph, before, count, std::move(made));
  });
}

#endif

}  // extern "C"
