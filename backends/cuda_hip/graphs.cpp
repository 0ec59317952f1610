// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/backend.hpp>

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

status graph_nodes(native::graph graph, native::graph_node* nodes, std::size_t& count) noexcept {
  return rt::graph_get_nodes(graph, nodes, &count);
}

status graph_edges(native::graph graph, native::graph_node* from, native::graph_node* to, std::size_t& count) noexcept {
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
                                          : NodeKind::other;
  return s;
}

status graph_destroy(native::graph graph) noexcept { return rt::graph_destroy(graph); }

status graph_instantiate(native::executable_graph& executable, native::graph graph) noexcept {
  return rt::graph_instantiate(&executable, graph, rt::free_at_next_launch);
}

status graph_update(native::executable_graph executable, native::graph graph) noexcept { return rt::graph_update(executable, graph); }

status graph_launch(native::executable_graph executable, native::stream stream) noexcept { return rt::graph_launch(executable, stream); }

bool orders_graph_launches() noexcept { return rt::orders_graph_launches; }

status executable_graph_destroy(native::executable_graph executable) noexcept { return rt::executable_graph_destroy(executable); }

}  // namespace runnel::inline RUNNEL_ABI::backend
