// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <cstddef>
#include <memory>
#include <new>

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

namespace {

/// Finds the capture of a stream that is being captured.
[[nodiscard]] rt::error find_open_capture(native::stream stream, rt::Captured& found) noexcept {
  const rt::error e = rt::find_capture(stream, found);
  return e == rt::error{} && found.graph == nullptr ? rt::capture_is_broken : e;
}

/// Adds a node after all work of the captured stream so far, and before its later work. AMD's
/// runtimes have such a call for events only since 7.0, and none for graphs. Adding the node
/// manually works in all versions of both vendors.
template <class Add>
[[nodiscard]] status capture_node(native::stream stream, Add add) noexcept {
  rt::Captured capture;
  rt::error e = find_open_capture(stream, capture);
  if (e != rt::error{}) return e;
  native::graph_node node{};
  e = add(&node, capture.graph, capture.before, capture.count);
  if (e != rt::error{}) return e;
  e = rt::continue_after(stream, node);
  if (e != rt::error{}) static_cast<void>(rt::graph_destroy_node(node));
  return e;
}

}  // namespace

status capture_event_record(native::event event, native::stream stream) noexcept {
  return capture_node(
      stream, [=](auto... position) { return rt::graph_add_event_record(position..., event); });
}

status capture_event_wait(native::stream stream, native::event event) noexcept {
  return capture_node(
      stream, [=](auto... position) { return rt::graph_add_event_wait(position..., event); });
}

status capture_owner(native::stream stream, void* object, void (*destroy)(void*)) noexcept {
  rt::Captured capture;
  const rt::error e = find_open_capture(stream, capture);
  if (e != rt::error{}) return destroy(object), e;
  return rt::graph_keep(capture.graph, object, destroy);
}

status graph_nodes(native::graph graph, native::graph_node* nodes, std::size_t& count) noexcept {
  return rt::graph_get_nodes(graph, nodes, &count);
}

status graph_edges(native::graph graph, native::graph_node* from, native::graph_node* to,
                   std::size_t& count) noexcept {
  return rt::graph_get_edges(graph, from, to, &count);
}

status graph_node_kind(native::graph_node node, NodeKind& kind) noexcept {
  rt::graph_node_type type{};
  const status s = rt::graph_node_get_type(node, &type);
  kind = type == rt::node_kernel          ? NodeKind::kernel
         : rt::is_copy_node(type)         ? NodeKind::copy
         : type == rt::node_fill          ? NodeKind::fill
         : type == rt::node_host_function ? NodeKind::host_function
         : type == rt::node_allocation    ? NodeKind::allocation
         : type == rt::node_free          ? NodeKind::free
         : type == rt::node_event_record  ? NodeKind::event_record
         : type == rt::node_event_wait    ? NodeKind::event_wait
         : type == rt::node_graph         ? NodeKind::graph
                                          : NodeKind::other;
  return s;
}

status graph_destroy(native::graph graph) noexcept { return rt::graph_destroy(graph); }

status graph_instantiate(native::executable_graph& executable, native::graph graph) noexcept {
  return rt::graph_instantiate(&executable, graph, rt::free_at_next_launch);
}

namespace {

struct Relinked {
  Relink relink;
  void* context;
};

[[nodiscard]] status relink_node(native::graph_node node, const Relinked& how) noexcept;

/// Relinks the functions of a node's child graph.
[[nodiscard]] status relink_child(native::graph_node holder, const Relinked& how) noexcept {
  native::graph child{};
  std::size_t count = 0;
  status s = rt::graph_of_node(holder, &child);
  if (s == ok) s = rt::graph_get_nodes(child, nullptr, &count);
  if (s != ok || count == 0) return s;
  const std::unique_ptr<native::graph_node[]> nodes{new (std::nothrow) native::graph_node[count]};
  if (nodes == nullptr) return rt::out_of_memory;
  s = rt::graph_get_nodes(child, nodes.get(), &count);
  for (std::size_t i = 0; i < count && s == ok; ++i) s = relink_node(nodes[i], how);
  return s;
}

status relink_node(native::graph_node node, const Relinked& how) noexcept {
  NodeKind kind{};
  status s = graph_node_kind(node, kind);
  if (s == ok && kind == NodeKind::graph) return relink_child(node, how);
  if (s != ok || kind != NodeKind::host_function) return s;
  rt::host_function_arguments called{};
  s = rt::graph_get_host_function(node, &called);
  if (s != ok) return s;
  called.userData = how.relink(how.context, called.fn, called.userData);
  return rt::graph_set_host_function(node, &called);
}

}  // namespace

status capture_graph(native::stream stream, native::graph graph, Relink relink,
                     void* context) noexcept {
  return capture_node(stream, [&](native::graph_node* node, auto... position) {
    const rt::error e = rt::graph_add_graph(node, position..., graph);
    if (e != rt::error{}) return e;
    const auto relinked = static_cast<rt::error>(relink_child(*node, {relink, context}));
    if (relinked != rt::error{}) static_cast<void>(rt::graph_destroy_node(*node));
    return relinked;
  });
}

status graph_update(native::executable_graph executable, native::graph graph) noexcept {
  return rt::graph_update(executable, graph);
}

status graph_launch(native::executable_graph executable, native::stream stream) noexcept {
  return rt::graph_launch(executable, stream);
}

bool orders_graph_launches() noexcept { return rt::orders_graph_launches; }

status executable_graph_destroy(native::executable_graph executable) noexcept {
  return rt::executable_graph_destroy(executable);
}

}  // namespace runnel::inline RUNNEL_ABI::backend
