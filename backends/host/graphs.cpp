// SPDX-License-Identifier: Apache-2.0
#include "event.hpp"

#include "base/sync.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace host { namespace {

/// One submission of a launch to the queue of a chain, in this order.
struct Submission {
  static constexpr std::size_t none = ~std::size_t{0};
  std::size_t chain;
  // Runs these nodes of Plan::nodes. May be empty, if only its number is needed.
  std::size_t first, last;
  std::size_t after = none;                           // or waits for this submission
  const native::host_graph_node* of_event = nullptr;  // or records an event, or waits for one
};

struct Plan {
  std::shared_ptr<const GraphWork> work;  // owns the nodes
  std::vector<const native::host_graph_node*> nodes;
  std::vector<Submission> submissions;
  std::size_t chains = 1;
};

/// Merges consecutive nodes of a chain into one submission, if no other chain waits for a node
/// between them. Expands child graphs: their chains become chains of the plan.
class Planner {
 public:
  explicit Planner(const std::shared_ptr<const GraphWork>& work) : open_(1) {
    add(*work, 0);
    close(0, !plan_.submissions.empty());  // its number marks the end of the launch
    plan_.work = work;
    plan_.chains = open_.size();
  }
  [[nodiscard]] Plan take() { return std::move(plan_); }

 private:
  /// A graph that is being expanded into the plan.
  struct Expansion {
    std::vector<std::size_t> chains;  // the plan's chain for each chain of the graph
    std::vector<std::size_t> steps;   // so far
    std::set<Position> awaited;
    // The submission that ends at each awaited position.
    std::map<Position, std::size_t> ends;
  };

  /// Adds a graph; its first chain continues `chain`.
  void add(const GraphWork& work, std::size_t chain) {
    Expansion expansion{{chain}, std::vector<std::size_t>(work.chains, 0), {}, {}};
    while (expansion.chains.size() < work.chains) {
      expansion.chains.push_back(open_.size());
      open_.emplace_back();
    }
    if (work.chains > 1) fork(expansion);
    for (const GraphWork::Step& step : work.steps)
      if (step.node == nullptr) expansion.awaited.insert(step.after);
    for (const GraphWork::Step& step : work.steps) add(step, expansion);
  }

  /// Makes the other chains start after the present end of the first one.
  void fork(const Expansion& expansion) {
    close(expansion.chains.front(), true);
    const std::size_t start = plan_.submissions.size() - 1;
    for (std::size_t i = 1; i < expansion.chains.size(); ++i)
      plan_.submissions.push_back({expansion.chains[i], 0, 0, start});
  }

  void add(const GraphWork::Step& step, Expansion& expansion) {
    const std::size_t chain = expansion.chains[step.chain];
    if (step.node != nullptr && step.node->child != nullptr) {
      add(*step.node->child, chain);
    } else if (step.node != nullptr && step.node->event != nullptr) {
      close(chain, false);
      plan_.submissions.push_back({chain, 0, 0, Submission::none, step.node});
    } else if (step.node != nullptr) {
      open_[chain].push_back(step.node);
    } else if (const auto found = expansion.ends.find(step.after); found != expansion.ends.end()) {
      close(chain, false);
      plan_.submissions.push_back({chain, 0, 0, found->second});
    }
    const Position reached{step.chain, ++expansion.steps[step.chain]};
    if (expansion.awaited.count(reached) == 0) return;
    close(chain, true);
    expansion.ends[reached] = plan_.submissions.size() - 1;
  }

  /// Submits the open nodes of a chain. `always`: even if there are none.
  void close(std::size_t chain, bool always) {
    std::vector<const native::host_graph_node*>& open = open_[chain];
    if (open.empty() && !always) return;
    const std::size_t first = plan_.nodes.size();
    plan_.nodes.insert(plan_.nodes.end(), open.begin(), open.end());
    open.clear();
    plan_.submissions.push_back({chain, first, plan_.nodes.size()});
  }

  Plan plan_;
  std::vector<std::vector<const native::host_graph_node*>> open_;  // by chain of the plan
};

/// A queue that only graph launches use.
class GraphQueue {
 public:
  GraphQueue() : queue_{std::make_shared<TaskQueue>(0)} { prepare(*queue_); }
  GraphQueue(GraphQueue&&) noexcept = default;
  GraphQueue& operator=(GraphQueue&&) = delete;
  ~GraphQueue() {
    if (queue_ != nullptr) queue_->close();
  }
  [[nodiscard]] const TaskQueuePtr& get() const noexcept { return queue_; }

 private:
  TaskQueuePtr queue_;
};

}}  // namespace host

struct native::host_executable_graph {
  std::shared_ptr<const host::Plan> plan;
  // Of all chains but the first, which runs in the queue of the launching stream.
  std::vector<host::GraphQueue> queues{};
  std::vector<host::Wait> ends{};  // of the present launch, by submission
  // The records of the present launch, in the order of the submissions.
  std::vector<host::MarkTask> records{};
  host::Wait last{};  // the end of the last launch
};

namespace host { namespace {

/// The task of a submission.
struct RunNodes {
  std::shared_ptr<const Plan> plan;
  std::size_t first, last;
  void operator()() const noexcept {
    for (std::size_t i = first; i < last; ++i)
      if (plan->nodes[i]->run) plan->nodes[i]->run();
  }
};

[[nodiscard]] std::shared_ptr<const Plan> plan_of(const native::host_graph& graph) {
  return std::make_shared<const Plan>(Planner{graph.work}.take());
}

[[nodiscard]] const TaskQueuePtr& queue_of(const native::host_executable_graph& graph,
                                           std::size_t chain, const native::host_stream& stream) {
  return chain == 0 ? stream.queue : graph.queues[chain - 1].get();
}

[[nodiscard]] bool is_record(const Submission& submission) noexcept {
  return submission.of_event != nullptr &&
         submission.of_event->kind == backend::NodeKind::event_record;
}

/// Reserves memory, so that no submission of the launch can fail, unless another thread submits to
/// the same stream while memory runs out.
void make_room(native::host_executable_graph& graph, native::host_stream& stream) {
  const std::size_t count = graph.plan->submissions.size() + 2;
  graph.ends.assign(count, {});
  graph.records.clear();
  for (const Submission& each : graph.plan->submissions)
    if (is_record(each)) graph.records.push_back(each.of_event->event->make_task());
  stream.queue->wait_for_room();
  stream.queue->reserve(count);
  for (const GraphQueue& queue : graph.queues) {
    queue.get()->wait_for_room();
    queue.get()->reserve(count);
  }
}

/// Submits the record, and makes it the event's last one.
void record(native::host_event& event, const TaskQueuePtr& queue, MarkTask task) {
  Mark mark;
  mark.stamp = task.stamp;
  mark.wait = {queue, 0, task.token};
  mark.wait.until = queue->submit(std::move(task));
  event.replace(std::move(mark));
}

void launch(native::host_executable_graph& graph, native::host_stream& stream) {
  make_room(graph, stream);
  auto next_record = graph.records.begin();
  const OrderedSubmission in_order{stream};
  stream.queue->submit_wait(graph.last);
  if (!graph.queues.empty()) {
    const Wait start = TaskQueue::end_of(stream.queue);
    for (const GraphQueue& queue : graph.queues) queue.get()->submit_wait(start);
  }
  for (std::size_t i = 0; i < graph.plan->submissions.size(); ++i) {
    const Submission& each = graph.plan->submissions[i];
    const TaskQueuePtr& queue = queue_of(graph, each.chain, stream);
    if (each.after != Submission::none) {
      queue->submit_wait(graph.ends[each.after]);
    } else if (is_record(each)) {
      record(*each.of_event->event, queue, std::move(*next_record++));
    } else if (each.of_event != nullptr) {
      if (const Mark awaited = each.of_event->event->read(); awaited.wait.queue != nullptr)
        queue->submit_wait(awaited.wait);
    } else {
      const std::uint64_t number = queue->submit(RunNodes{graph.plan, each.first, each.last});
      graph.ends[i] = sync::finds_races ? TaskQueue::end_of(queue) : Wait{queue, number};
      if (each.chain == 0) graph.last = graph.ends[i];
    }
  }
}

/// Copies the work of a graph, for the graph that includes it.
class Snapshot {
 public:
  Snapshot(backend::Relink relink, void* context) : relink_{relink}, context_{context} {}
  [[nodiscard]] std::shared_ptr<const GraphWork> of(const GraphWork& work) const {
    auto copy = std::make_shared<GraphWork>();
    copy->chains = work.chains;
    copy->steps = work.steps;
    for (GraphWork::Step& step : copy->steps)
      if (step.node != nullptr) step.node = &copy->nodes.emplace_back(of(*step.node));
    return copy;
  }

 private:
  [[nodiscard]] native::host_graph_node of(const native::host_graph_node& node) const {
    native::host_graph_node now = node;
    if (now.child != nullptr) now.child = of(*now.child);
    if (now.function == nullptr) return now;
    now.data = relink_(context_, now.function, now.data);
    now.run = [function = now.function, data = now.data] { function(data); };
    return now;
  }

  backend::Relink relink_;
  void* context_;
};

/// The direct predecessors of each node, as pairs (predecessor, node).
using Edges =
    std::vector<std::pair<const native::host_graph_node*, const native::host_graph_node*>>;

/// The edges of the graph. Each node has an edge from the previous node of its chain. If the chain
/// has waited for other chains since then, the node also has an edge from the last node that each
/// of them had at the wait.
[[nodiscard]] Edges edges_of(const GraphWork& work) {
  using Nodes = std::set<const native::host_graph_node*>;
  std::vector<Nodes> front(work.chains);
  std::vector<std::size_t> steps(work.chains, 0);
  std::map<Position, Nodes> fronts;  // of each chain after each of its steps
  Edges edges;
  for (const GraphWork::Step& step : work.steps) {
    Nodes& own = front[step.chain];
    if (step.node == nullptr) {
      const Nodes& other = fronts[step.after];
      own.insert(other.begin(), other.end());
    } else {
      for (const native::host_graph_node* const before : own) edges.emplace_back(before, step.node);
      own = {step.node};
    }
    fronts[{step.chain, ++steps[step.chain]}] = own;
  }
  return edges;
}

/// Whether one graph can take the arguments of the other.
[[nodiscard]] bool has_same_shape(const GraphWork& a, const GraphWork& b) {
  const auto same = [](const GraphWork::Step& x, const GraphWork::Step& y) {
    const bool alike =
        x.chain == y.chain && x.after == y.after && (x.node == nullptr) == (y.node == nullptr);
    if (!alike || x.node == nullptr) return alike;
    return x.node->kind == y.node->kind &&
           (x.node->child == nullptr || has_same_shape(*x.node->child, *y.node->child));
  };
  return a.chains == b.chains &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), same);
}

}}  // namespace host

namespace backend {

using host::catch_bad_alloc;

namespace {

[[nodiscard]] native::graph_node handle_of(const native::host_graph_node* node) noexcept {
  return const_cast<native::graph_node>(node);
}

}  // namespace

status graph_nodes(native::graph graph, native::graph_node* nodes, std::size_t& count) noexcept {
  std::size_t found = 0;
  for (const native::host_graph_node& node : graph->work->nodes) {
    if (nodes != nullptr && found < count) nodes[found] = handle_of(&node);
    ++found;
  }
  count = found;
  return ok;
}

status graph_edges(native::graph graph, native::graph_node* from, native::graph_node* to,
                   std::size_t& count) noexcept {
  return catch_bad_alloc([&] {
    const host::Edges edges = host::edges_of(*graph->work);
    for (std::size_t i = 0; i < std::min(count, edges.size()) && from != nullptr && to != nullptr;
         ++i) {
      from[i] = handle_of(edges[i].first);
      to[i] = handle_of(edges[i].second);
    }
    count = edges.size();
    return ok;
  });
}

status graph_node_kind(native::graph_node node, NodeKind& kind) noexcept {
  kind = node->kind;
  return ok;
}

status graph_destroy(native::graph graph) noexcept {
  delete graph;
  return ok;
}

status graph_instantiate(native::executable_graph& executable, native::graph graph) noexcept {
  return catch_bad_alloc([&] {
    auto fresh = std::make_unique<native::host_executable_graph>(
        native::host_executable_graph{host::plan_of(*graph)});
    for (std::size_t chain = 1; chain < fresh->plan->chains; ++chain) fresh->queues.emplace_back();
    executable = fresh.release();
    return ok;
  });
}

status capture_event_record(native::event event, native::stream stream) noexcept {
  return host::capture_event_node(stream, NodeKind::event_record, event);
}

status capture_event_wait(native::stream stream, native::event event) noexcept {
  return host::capture_event_node(stream, NodeKind::event_wait, event);
}

// On the host every capture is one of the library.
status capture_owner(native::stream, void* object, void (*destroy)(void*)) noexcept {
  return destroy(object), host::status_of(errc::not_supported);
}

status capture_graph(native::stream stream, native::graph graph, Relink relink,
                     void* context) noexcept {
  return catch_bad_alloc([&] {
    native::host_graph_node node{.kind = NodeKind::graph, .run = {}};
    node.child = host::Snapshot{relink, context}.of(*graph->work);
    return host::capture_node(host::resolve(stream), std::move(node))
        .value_or(host::status_of(errc::capture));
  });
}

status graph_update(native::executable_graph executable, native::graph graph) noexcept {
  return catch_bad_alloc([&] {
    if (!host::has_same_shape(*executable->plan->work, *graph->work))
      return host::status_of(errc::not_supported);
    executable->plan = host::plan_of(*graph);
    return ok;
  });
}

status graph_launch(native::executable_graph graph, native::stream handle) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& stream = host::resolve(handle);
    if (stream.is_captured()) return host::status_of(errc::capture);
    host::launch(*graph, stream);
    return ok;
  });
}

bool orders_graph_launches() noexcept { return true; }

status executable_graph_destroy(native::executable_graph graph) noexcept {
  delete graph;
  return ok;
}

}  // namespace backend
}  // namespace runnel::inline RUNNEL_ABI
