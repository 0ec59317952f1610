// SPDX-License-Identifier: Apache-2.0
// Nodes of a graph that are changed, disabled and enabled.
#include <dlfcn.h>

#include <functional>

#include "support.hpp"

namespace {
using namespace runnel;
using conformance::code_of;
using conformance::Gate;
using conformance::text_of;

class GraphNodes : public conformance::Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    stream.emplace();
    memory.emplace(count, *stream);
    for (auto* buffer : {&first, &second, &result}) buffer->emplace(count);
    std::fill(first->begin(), first->end(), 1);
    std::fill(second->begin(), second->end(), 2);
    clear();
  }
  void TearDown() override {
    memory.reset();
    for (auto* buffer : {&first, &second, &result}) buffer->reset();
    stream.reset();
    Conformance::TearDown();
  }
  void clear() { std::fill(result->begin(), result->end(), 0); }
  /// The result of a launch.
  [[nodiscard]] int launched(const Graph& graph) {
    clear();
    graph.launch(*stream);
    stream->synchronize();
    return result->data()[count - 1];
  }
  void read_back() { copy(*stream, *result, *memory); }
  /// Whether the runtime can enable and disable what is no host function: HIP can since 5.6.
  [[nodiscard]] bool can_disable(Graph& graph, GraphNode node) {
    return code_of([&] { graph.set_enabled(node, true); }) != errc::not_supported;
  }

  static constexpr std::size_t count = 1000;
  std::optional<Stream> stream;
  std::optional<PinnedBuffer<unsigned char>> first, second, result;
  std::optional<DeviceBuffer<unsigned char>> memory;
};

TEST_F(GraphNodes, ACopyGetsNewAddresses) {
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    copy(*stream, *memory, *first);
    node = last_node(*stream);
    read_back();
  });
  EXPECT_TRUE(node.is_valid());
  EXPECT_NE(node.native(), nullptr);
  EXPECT_EQ(launched(graph), 1);
  graph.update(*stream, node, [&] { copy(*stream, *memory, *second); });
  EXPECT_EQ(launched(graph), 2);
  EXPECT_EQ(graph.node_count(), 2U);
  graph.update(*stream, node, [&] { copy(*stream, *memory, *first); });
  EXPECT_EQ(launched(graph), 1);
}

TEST_F(GraphNodes, ACopyGetsAnotherSize) {
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    fill(*stream, *memory, static_cast<unsigned char>(7));
    copy(*stream, *memory, *first);
    node = last_node(*stream);
    read_back();
  });
  graph.update(*stream, node,
               [&] { copy_bytes(*stream, memory->data(), second->data(), count / 2); });
  EXPECT_EQ(launched(graph), 7);
  EXPECT_EQ(result->data()[0], 2);
}

TEST_F(GraphNodes, AFillGetsAnotherValue) {
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    fill(*stream, *memory, static_cast<unsigned char>(3));
    node = last_node(*stream);
    read_back();
  });
  EXPECT_EQ(launched(graph), 3);
  graph.update(*stream, node, [&] { fill(*stream, *memory, static_cast<unsigned char>(4)); });
  EXPECT_EQ(launched(graph), 4);
}

TEST_F(GraphNodes, AHostFunctionIsReplaced) {
  int seen = 0;
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    stream->launch_host_func([&] { seen = 1; });
    node = last_node(*stream);
  });
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_EQ(seen, 1);
  graph.update(*stream, node, [&] { stream->launch_host_func([&] { seen = 2; }); });
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_EQ(seen, 2);
}

TEST_F(GraphNodes, LaunchesUnderWayKeepTheirArguments) {
  std::vector<int> seen;
  std::vector<GraphNode> nodes;
  Graph graph = capture(*stream, [&] {
    copy(*stream, *memory, *first);
    nodes.push_back(last_node(*stream));
    read_back();
    stream->launch_host_func([&] { seen.push_back(result->data()[0]); });
    nodes.push_back(last_node(*stream));
  });
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  graph.update(*stream, nodes[0], [&] { copy(*stream, *memory, *second); });
  graph.update(*stream, nodes[1],
               [&] { stream->launch_host_func([&] { seen.push_back(100 + result->data()[0]); }); });
  graph.launch(*stream);
  graph.update(*stream, nodes[1],
               [&] { stream->launch_host_func([&] { seen.push_back(200 + result->data()[0]); }); });
  graph.launch(*stream);
  gate.open();
  stream->synchronize();
  EXPECT_EQ(seen, (std::vector<int>{1, 102, 202}));
}

TEST_F(GraphNodes, AReplacedFunctionIsDestroyedAfterItsLastRun) {
  const auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> watched{owned};
  GraphNode node;
  auto held = owned;
  Graph graph = capture(*stream, [&] {
    stream->launch_host_func([kept = std::move(held)] { ++*kept; });
    node = last_node(*stream);
  });
  {
    Gate gate;
    gate.close_on(*stream);
    graph.launch(*stream);
    graph.update(*stream, node, [&] { stream->launch_host_func([] {}); });
    EXPECT_EQ(owned.use_count(), 2) << "a launch under way calls it";
    gate.open();
    stream->synchronize();
  }
  EXPECT_EQ(*owned, 1);
  EXPECT_EQ(owned.use_count(), 1);
  held = owned;
  graph.update(*stream, node,
               [&] { stream->launch_host_func([kept = std::move(held)] { ++*kept; }); });
  EXPECT_EQ(owned.use_count(), 2);
  graph.update(*stream, node, [&] { stream->launch_host_func([] {}); });
  EXPECT_EQ(owned.use_count(), 1) << "no launch has called it";
  graph.launch(*stream);
  stream->synchronize();
}

TEST_F(GraphNodes, WhatTheWorkKeepsLivesAsLongAsTheGraph) {
  const auto owned = std::make_shared<int>(0);
  GraphNode node;
  std::optional<Graph> graph = capture(*stream, [&] {
    stream->launch_host_func([] {});
    node = last_node(*stream);
  });
  auto held = owned;
  graph->update(*stream, node, [&] {
    keep(*stream, std::move(held));
    stream->launch_host_func([] {});
  });
  EXPECT_EQ(owned.use_count(), 2);
  graph->launch(*stream);
  graph.reset();
  stream->synchronize();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_F(GraphNodes, AnExceptionOfANewFunctionArrives) {
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    stream->launch_host_func([] {});
    node = last_node(*stream);
  });
  graph.update(*stream, node, [&] { stream->launch_host_func([] { throw 5; }); });
  graph.launch(*stream);
  EXPECT_THROW(stream->synchronize(), int);
}

TEST_F(GraphNodes, ADisabledFunctionIsNotCalled) {
  std::vector<int> seen;
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    stream->launch_host_func([&] { seen.push_back(1); });
    node = last_node(*stream);
    stream->launch_host_func([&] { seen.push_back(2); });
  });
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  graph.set_enabled(node, false);
  graph.launch(*stream);
  graph.update(*stream, node, [&] { stream->launch_host_func([&] { seen.push_back(3); }); });
  graph.launch(*stream);
  graph.set_enabled(node, true);
  graph.set_enabled(node, true);
  graph.launch(*stream);
  gate.open();
  stream->synchronize();
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 2, 2, 3, 2}));
}

TEST_F(GraphNodes, ADisabledCopyAndFillDoNothing) {
  GraphNode filled, copied;
  Graph graph = capture(*stream, [&] {
    fill(*stream, *memory, static_cast<unsigned char>(3));
    filled = last_node(*stream);
    copy(*stream, *memory, *first);
    copied = last_node(*stream);
    read_back();
  });
  if (!can_disable(graph, copied)) GTEST_SKIP() << "the runtime cannot disable a node";
  EXPECT_EQ(launched(graph), 1);
  graph.set_enabled(copied, false);
  EXPECT_EQ(launched(graph), 3);
  fill(*stream, *memory, static_cast<unsigned char>(9));
  graph.set_enabled(filled, false);
  EXPECT_EQ(launched(graph), 9);
  graph.update(*stream, copied, [&] { copy(*stream, *memory, *second); });
  EXPECT_EQ(launched(graph), 9) << "it is still disabled";
  graph.set_enabled(copied, true);
  EXPECT_EQ(launched(graph), 2);
}

TEST_F(GraphNodes, ALaunchUnderWayIsNotDisabled) {
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    copy(*stream, *memory, *first);
    node = last_node(*stream);
    read_back();
  });
  if (!can_disable(graph, node)) GTEST_SKIP() << "the runtime cannot disable a node";
  fill(*stream, *memory, static_cast<unsigned char>(8));
  stream->synchronize();
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  graph.set_enabled(node, false);
  gate.open();
  stream->synchronize();
  EXPECT_EQ(result->data()[0], 1);
}

TEST_F(GraphNodes, AnUpdateOfAllEndsTheOldNodes) {
  GraphNode old;
  Graph graph = capture(*stream, [&] {
    copy(*stream, *memory, *first);
    old = last_node(*stream);
    read_back();
  });
  graph.update(*stream, old, [&] { copy(*stream, *memory, *second); });
  static_cast<void>(graph.update(*stream, [&] {
    copy(*stream, *memory, *first);
    read_back();
  }));
  EXPECT_EQ(launched(graph), 1);
  EXPECT_EQ(code_of([&] { graph.set_enabled(old, true); }), errc::invalid_handle);
  GraphNode fresh;
  static_cast<void>(graph.update(*stream, [&] {
    copy(*stream, *memory, *first);
    fresh = last_node(*stream);
    read_back();
  }));
  graph.update(*stream, fresh, [&] { copy(*stream, *memory, *second); });
  EXPECT_EQ(launched(graph), 2);
}

TEST_F(GraphNodes, WrongNodesAndWorkAreRefusedByName) {
  GraphNode copied, function, event_node;
  Event event{EventOptions{.external = true}};
  Graph graph = capture(*stream, [&] {
    copy(*stream, *memory, *first);
    copied = last_node(*stream);
    stream->launch_host_func([] {});
    function = last_node(*stream);
    event.record(*stream);
    event_node = last_node(*stream);
    read_back();
  });
  Graph other = capture(*stream, [&] { copy(*stream, *memory, *first); });
  const auto change = [&](Graph& of, GraphNode node, auto work) {
    return code_of([&] { of.update(*stream, node, work); });
  };
  const auto copy_second = [&] { copy(*stream, *memory, *second); };
  EXPECT_EQ(change(other, copied, copy_second), errc::invalid_handle);
  EXPECT_EQ(change(graph, GraphNode{}, copy_second), errc::invalid_handle);
  EXPECT_EQ(change(graph, function, copy_second), errc::invalid_argument);
  EXPECT_EQ(change(graph, copied, [&] { copy_second(), read_back(); }), errc::invalid_argument);
  EXPECT_EQ(change(graph, copied, [] {}), errc::invalid_argument);
  EXPECT_EQ(change(graph, event_node, [&] { event.record(*stream); }), errc::not_supported);
  EXPECT_EQ(code_of([&] { graph.set_enabled(event_node, false); }), errc::not_supported);
  EXPECT_EQ(code_of([&] { return last_node(*stream); }), errc::capture);
  EXPECT_FALSE(stream->is_capturing());
  EXPECT_EQ(launched(graph), 1) << "the refusals have changed nothing";
  Graph empty;
  EXPECT_EQ(code_of([&] { empty.set_enabled(copied, true); }), errc::invalid_handle);
}

TEST_F(GraphNodes, AJoinIsNoNode) {
  const Stream side;
  begin_capture(*stream);
  EXPECT_EQ(code_of([&] { return last_node(*stream); }), errc::invalid_argument);
  side.wait_stream(*stream);
  copy(*stream, *memory, *first);
  fill(side, *second, static_cast<unsigned char>(2));
  EXPECT_TRUE(last_node(side).is_valid());
  stream->wait_stream(side);
  EXPECT_EQ(code_of([&] { return last_node(*stream); }), errc::invalid_argument);
  const Graph graph = end_capture(*stream);
  graph.launch(*stream);
  stream->synchronize();
}

TEST_F(GraphNodes, KernelsAreChangedAndDisabled) {
  using RunWork = int (*)(void*, const char*, const std::function<void()>&);
  const auto run_work = reinterpret_cast<RunWork>(dlsym(RTLD_DEFAULT, "standin_run_work"));
  if (run_work == nullptr) GTEST_SKIP() << "kernels of a test are the stand-in's";
  int seen = 0;
  const auto kernel = [&](int value) {
    return run_work(stream->native(), "set", [&seen, value] { seen = value; });
  };
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    EXPECT_EQ(kernel(1), 0);
    node = last_node(*stream);
  });
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_EQ(seen, 1);
  graph.update(*stream, node, [&] { EXPECT_EQ(kernel(2), 0); });
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_EQ(seen, 2);
  if (!can_disable(graph, node)) return;
  seen = 0;
  graph.set_enabled(node, false);
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_EQ(seen, 0);
}

TEST_F(GraphNodes, ThreadsChangeAndLaunchAtOnce) {
  std::atomic<int> runs{0};
  GraphNode node;
  Graph graph = capture(*stream, [&] {
    stream->launch_host_func([&] { ++runs; });
    node = last_node(*stream);
  });
  const Stream other;
  conformance::on_threads(2, [&](int i) {
    for (int n = 0; n < 40; ++n) {
      if (i == 0)
        graph.launch(*stream);
      else
        graph.update(other, node, [&] { other.launch_host_func([&] { ++runs; }); });
    }
  });
  stream->synchronize();
  EXPECT_EQ(runs, 40);
}

}  // namespace
