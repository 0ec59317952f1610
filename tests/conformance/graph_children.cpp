// SPDX-License-Identifier: Apache-2.0
// Graphs within graphs: a graph that is launched on a captured stream.

#include "graph_test.hpp"

namespace conformance::graph_children_cases {

class GraphChildren : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (IsSkipped()) return;
    memory.emplace(count, *stream);
    for (auto* buffer : {&source, &result}) buffer->emplace(count);
    std::ranges::fill(*source, 1);
    std::ranges::fill(*result, 0);
    stream->synchronize();
  }
  void TearDown() override {
    memory.reset();
    for (auto* buffer : {&source, &result}) buffer->reset();
    GraphTest::TearDown();
  }
  /// There and back.
  Graph copies() {
    return graph_of([&] {
      copy(*stream, *memory, *source);
      copy(*stream, *result, *memory);
    });
  }

  static constexpr size_t count = 1000;
  std::optional<PinnedBytes> source, result;
  std::optional<DeviceBytes> memory;
};

TEST_F(GraphChildren, AGraphIsANodeOfAnother) {
  const Graph inner = copies();
  const Graph outer = graph_of([&] { inner.launch(*stream); });
  EXPECT_EQ(result->data()[0], 0) << "captured work ran";
  EXPECT_NODES(outer, 1U);
  EXPECT_SAYS(outer.dot(), "graph\"");
  for (const auto value : std::to_array<unsigned char>({3, 4})) {
    std::ranges::fill(*source, value);
    run(outer);
    EXPECT_EQ(result->data()[count - 1], value);
  }
  run(inner);
}

TEST_F(GraphChildren, AChildRunsAtItsPlace) {
  Ints order;
  const Graph inner = graph_of([&] {
    stream->launch_host_func([&] { order.push_back(2); });
    stream->launch_host_func([&] { order.push_back(3); });
  });
  const Graph outer = graph_of([&] {
    stream->launch_host_func([&] { order.push_back(1); });
    inner.launch(*stream);
    stream->launch_host_func([&] { order.push_back(4); });
    inner.launch(*stream);
  });
  run(outer);
  run(outer);
  EXPECT_EQ(order, (Ints{1, 2, 3, 4, 2, 3, 1, 2, 3, 4, 2, 3}));
}

TEST_F(GraphChildren, BranchesWithinAChildForkAndJoin) {
  std::atomic_int left{0}, right{0};
  int sum = 0, before = 0;
  const Graph inner = graph_of([&] {
    side->wait_stream(*stream);
    stream->launch_host_func([&] { left = before; });
    side->launch_host_func([&] { right = before; });
    stream->wait_stream(*side);
  });
  const Graph outer = graph_of([&] {
    stream->launch_host_func([&] { ++before; });
    inner.launch(*stream);
    stream->launch_host_func([&] { sum += left + right; });
    inner.launch(*stream);
  });
  repeat(20, [&] { outer.launch(*stream); });
  stream->synchronize();
  EXPECT_EQ(sum, 2 * 20 * 21 / 2);
}

TEST_F(GraphChildren, ABranchOfTheOuterGraphLaunchesAChild) {
  std::atomic_int runs{0};
  int seen = 0;
  const Graph inner = graph_calling([&] { ++runs; });
  const Graph outer = graph_of([&] {
    side->wait_stream(*stream);
    inner.launch(*side);
    inner.launch(*stream);
    stream->wait_stream(*side);
    stream->launch_host_func([&] { seen = runs; });
  });
  run(outer);
  EXPECT_EQ(seen, 2);
}

TEST_F(GraphChildren, GraphsNestFourDeep) {
  int runs = 0;
  Graph graph = graph_calling([&] { ++runs; });
  repeat(3, [&] {
    Graph outer = graph_of([&] {
      graph.launch(*stream);
      graph.launch(*stream);
    });
    graph = std::move(outer);  // the inner graph is dropped
  });
  run(graph);
  EXPECT_EQ(runs, 8);
  run(graph);
  EXPECT_EQ(runs, 16);
}

TEST_F(GraphChildren, TheInnerGraphMayBeDropped) {
  const auto owned = std::make_shared<int>(0);
  auto held = owned;
  std::optional<Graph> inner = graph_of([&] {
    keep(*stream, std::vector<std::shared_ptr<int>>{owned});
    stream->launch_host_func([kept = std::move(held)] { ++*kept; });
  });
  std::optional<Graph> outer = graph_of([&] { inner->launch(*stream); });
  inner.reset();
  EXPECT_EQ(owned.use_count(), 3);
  run(*outer);
  run(*outer);
  EXPECT_EQ(*owned, 2);
  outer->launch(*stream);
  outer.reset();
  EXPECT_TRUE(quiesce_for(patience));
  EXPECT_EQ(*owned, 3);
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_F(GraphChildren, AnExceptionArrivesAtTheStreamOfTheOuterLaunch) {
  const Graph inner = graph_calling([] { throw 7; });
  const Graph outer = graph_of([&] { inner.launch(*stream); });
  outer.launch(*side);
  EXPECT_THROW(side->synchronize(), int);
  stream->synchronize();
}

TEST_F(GraphChildren, EventsWithinAChildAreRecordedAndAwaited) {
  Event recorded{EventOptions{.external = true}}, awaited{EventOptions{.external = true}};
  const Graph inner = graph_of([&] {
    stream->wait_event(awaited);
    copy(*stream, *result, *source);
    recorded.record(*stream);
  });
  const Graph outer = graph_of([&] { inner.launch(*stream); });
  repeat(2, [&] {
    Gate gate{*side};
    awaited.record(*side);
    outer.launch(*stream);
    EXPECT_BEHIND(gate, recorded);
    EXPECT_EQ(result->data()[0], 1);
  });
  stream->synchronize();
  side->synchronize();
}

TEST_F(GraphChildren, AnUpdateGivesAChildNewWork) {
  int seen = 0;
  const Graph one = graph_calling([&] { seen = 1; });
  const Graph two = graph_calling([&] { seen = 2; });
  Graph outer = graph_of([&] { one.launch(*stream); });
  drop(outer.update(*stream, [&] { two.launch(*stream); }));
  run(outer);
  EXPECT_EQ(seen, 2);
}

TEST_F(GraphChildren, AnEmptyGraphIsANodeToo) {
  const Graph inner = graph_of([] {});
  const Graph outer = graph_of([&] {
    copy(*stream, *result, *source);
    inner.launch(*stream);
  });
  run(outer);
  EXPECT_EQ(result->data()[0], 1);
}

TEST_F(GraphChildren, WhatCannotBePartIsRefusedByName) {
  std::optional<Graph> allocates;
  try {
    allocates = graph_of([&] { const DeviceBytes inside(count, *stream); });
  } catch (const Error& error) {  // older runtimes cannot capture allocations
    EXPECT_EQ(error.code(), errc::capture);
  }
  begin_capture(*stream);
  if (allocates && device().has_memory_pools()) {  // else the graph is empty
    EXPECT_ERROR(not_supported, allocates->launch(*stream));
  }
  copy(*stream, *result, *source);
  const Graph graph = end_capture(*stream);
  EXPECT_NODES(graph, 1U);
  run(graph);
  EXPECT_EQ(result->data()[0], 1) << "the refusals have left the capture as it was";
}

TEST_F(GraphChildren, InnerAndOuterAreLaunchedAtOnce) {
  std::atomic_int runs{0};
  const Graph inner = graph_calling([&] { ++runs; });
  const Graph outer = graph_of([&] { inner.launch(*stream); });
  on_threads(2, [&](int i) {
    repeat(50, [&] { (i == 0 ? inner : outer).launch(i == 0 ? *stream : *side); });
  });
  stream->synchronize();
  side->synchronize();
  EXPECT_EQ(runs, 100);
}

}  // namespace conformance::graph_children_cases
