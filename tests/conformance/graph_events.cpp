// SPDX-License-Identifier: Apache-2.0
// Events as nodes of graphs: EventOptions::external.
#include "graph_test.hpp"

namespace conformance::graph_events_cases {

constexpr EventOptions external{.external = true};

class GraphEvents : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (IsSkipped()) return;
    memory.emplace(count);
    set(0);
  }
  void TearDown() override {
    memory.reset();
    GraphTest::TearDown();
  }
  void set(unsigned char value) { std::ranges::fill(*memory, value); }
  unsigned char found() const { return memory->data()[count - 1]; }
  void fill_memory(StreamRef on, unsigned char value) {
    fill_bytes(on, memory->data(), value, count);
  }

  /// Graphs that record an event, behind a fill or alone.
  Graph filling(unsigned char value, auto& event) {
    return graph_of([&] {
      fill_memory(*stream, value);
      event.record(*stream);
    });
  }
  Graph recording(auto& event) {
    return graph_of([&] { event.record(*stream); });
  }

  static constexpr size_t count = 4096;
  std::optional<PinnedBytes> memory;
};

TEST_F(GraphEvents, EachLaunchRecordsTheEvent) {
  Event event{external};
  const Graph graph = filling(7, event);
  EXPECT_NODES(graph, 2U);
  EXPECT_DONE(event) << "nothing was launched yet";
  repeat(3, [&] {
    set(0);
    Gate gate{*stream};
    graph.launch(*stream);
    EXPECT_PENDING(event) << "the launch is behind the gate";
    gate.open_and_wait(event);
    EXPECT_DONE(event);
    EXPECT_EQ(found(), 7);
  });
  stream->synchronize();
}

TEST_F(GraphEvents, AnEventHappensAtItsPlaceWithinTheGraph) {
  Event event{external};
  Gate gate;
  const Graph graph = graph_of([&] {
    fill_memory(*stream, 7);
    event.record(*stream);
    gate.close_on(*stream);
  });
  graph.launch(*stream);
  event.synchronize();
  EXPECT_EQ(found(), 7);
  EXPECT_PENDING(*stream) << "the graph is behind its own gate";
  gate.open_and_wait(*stream);
}

TEST_F(GraphEvents, OtherStreamsWaitForTheLaunch) {
  Event event{external};
  const Graph graph = filling(5, event);
  unsigned char seen = 0;
  Gate gate{*stream};
  graph.launch(*stream);
  side->wait_event(event);
  side->launch_host_func([&] { seen = found(); });
  EXPECT_BEHIND(gate, *side);
  EXPECT_EQ(seen, 5);
  stream->synchronize();
}

TEST_F(GraphEvents, TimedEventsTimeAPartOfTheGraph) {
  TimedEvent start{external}, stop{external};
  const auto work = [] { std::this_thread::sleep_for(2ms); };
  const Graph graph = graph_of([&] {
    start.record(*stream);
    stream->launch_host_func(work);
    stop.record(*stream);
  });
  EXPECT_ERROR(invalid_argument, stop - start) << "nothing was launched yet";
  repeat(2, [&] {
    graph.launch(*stream);
    stop.synchronize();
    EXPECT_GE(stop - start, 1ms);
    EXPECT_LT(stop - start, patience);
  });
  TimedEvent later;
  later.record(*stream);
  later.synchronize();
  EXPECT_GE(later - stop, 0ns) << "a plain record and one of a graph compare";
}

TEST_F(GraphEvents, EachLaunchWaitsForTheRecordThatIsCurrent) {
  Event event{external};
  const Graph graph = graph_of([&] {
    stream->wait_event(event);
    fill_memory(*stream, 9);
  });
  graph.launch(*stream);  // an event that was never recorded is complete
  stream->synchronize();
  EXPECT_EQ(found(), 9);
  repeat(2, [&] {
    set(0);
    unsigned char before = 1;
    Gate gate{*side};
    side->launch_host_func([&] { before = found(); });
    event.record(*side);
    graph.launch(*stream);
    EXPECT_BEHIND(gate, *stream);
    EXPECT_EQ(before, 0) << "the graph has not waited";
    EXPECT_EQ(found(), 9);
  });
  side->synchronize();
}

TEST_F(GraphEvents, AnEventThatWasNeverRecordedIsCompleteWhateverOthersHaveMarked) {
  Event awaited{external}, recorded{external};
  Gate gate{*side};
  {
    // their native events go back to the pool, and happen once the gate is open
    const Event first{*side}, second{*side};
  }
  const Graph graph = graph_of([&] {
    stream->wait_event(awaited);
    fill_memory(*stream, 2);
    recorded.record(*stream);
  });
  EXPECT_DONE(recorded);
  EXPECT_DONE(awaited);
  graph.launch(*stream);
  EXPECT_COMPLETES(*stream);
  EXPECT_EQ(found(), 2);
  gate.open_and_wait(*side);
}

TEST_F(GraphEvents, OneGraphWaitsForAnEventOfAnother) {
  Event event{external};
  const Graph first = filling(3, event);
  unsigned char seen = 0;
  const Graph second = capture(*side, [&] {
    side->wait_event(event);
    side->launch_host_func([&] { seen = found(); });
  });
  repeat(3, [&] {
    set(0);
    seen = 0;
    Gate gate{*stream};
    first.launch(*stream);
    second.launch(*side);
    gate.open_and_wait(*side);
    EXPECT_EQ(seen, 3);
    stream->synchronize();
  });
}

TEST_F(GraphEvents, BranchesRecordAndWait) {
  Event early{external}, late{external};
  const Graph graph = graph_of([&] {
    side->wait_stream(*stream);
    fill_bytes(*stream, memory->data(), 1, count / 2);
    early.record(*stream);
    side->wait_event(late);
    fill_bytes(*side, memory->data() + count / 2, 2, count / 2);
    stream->wait_stream(*side);
  });
  const Stream other;
  Gate gate{other};
  late.record(other);
  graph.launch(*stream);
  early.synchronize();
  EXPECT_EQ(memory->data()[0], 1);
  EXPECT_PENDING(*stream) << "one branch waits for the other stream";
  gate.open_and_wait(*stream);
  EXPECT_EQ(found(), 2);
}

TEST_F(GraphEvents, OutsideOfACaptureAnEventIsAsOthers) {
  Event event{external};
  Gate gate{*stream};
  event.record(*stream);
  side->wait_event(event);
  EXPECT_PENDING(event);
  EXPECT_PENDING(*side);
  EXPECT_FALSE(event.synchronize_for(1ms));
  gate.open_and_wait(*side);
  EXPECT_DONE(event);
}

TEST_F(GraphEvents, TheCaptureAsksNothingOfTheEvent) {
  Event event{external};
  begin_capture(*stream);
  event.record(*stream);
  EXPECT_DONE(event);
  event.synchronize();
  EXPECT_TRUE(event.synchronize_for(1s));
  fill_memory(*stream, 1);
  const Graph graph = end_capture(*stream);
  run(graph);
  EXPECT_EQ(found(), 1);
}

TEST_F(GraphEvents, APlainRecordTakesThePlaceOfALaunchsAndBack) {
  Event event{external};
  const Graph graph = recording(event);
  {
    Gate gate{*side};
    graph.launch(*stream);
    event.record(*side);
    stream->synchronize();
    EXPECT_PENDING(event) << "the record on the other stream is the last one";
    graph.launch(*stream);
    event.synchronize();
    EXPECT_DONE(event) << "the launch is the last record";
    gate.open();
  }
  side->synchronize();
}

TEST_F(GraphEvents, AnEventMayBeDroppedBeforeTheGraph) {
  std::optional<Event> recorded{external}, awaited{external};
  Graph graph = graph_of([&] {
    stream->wait_event(*awaited);
    fill_memory(*stream, 4);
    recorded->record(*stream);
  });
  awaited->record(*side);
  recorded.reset();
  awaited.reset();
  std::vector<Event> others;  // which would get a handle that was given back too early
  repeat(8, [&] { others.emplace_back(*side); });
  repeat(2, [&] {
    set(0);
    run(graph);
    EXPECT_EQ(found(), 4);
  });
  side->synchronize();
  Gate gate{*stream};
  graph.launch(*stream);
  graph = Graph{};
  for (const Event& other : others) EXPECT_DONE(other) << "the launch has recorded another event";
  gate.open_and_wait(*stream);
}

TEST_F(GraphEvents, AGraphMayBeDroppedBeforeTheEvent) {
  Event event{external};
  {
    const Graph graph = filling(6, event);
    graph.launch(*stream);
  }
  event.synchronize();
  EXPECT_EQ(found(), 6);
  event.record(*side);
  EXPECT_COMPLETES(event);
  stream->synchronize();
}

TEST_F(GraphEvents, AMovedEventIsTheSame) {
  Event event{external};
  const Graph graph = recording(event);
  Event moved{std::move(event)};
  Gate gate{*stream};
  graph.launch(*stream);
  EXPECT_BEHIND(gate, moved);
  stream->synchronize();
}

TEST_F(GraphEvents, CompletionFunctionsFollowTheLaunch) {
  Event event{external};
  const Graph graph = filling(8, event);
  std::atomic_int seen{0};
  Gate gate{*stream};
  graph.launch(*stream);
  event.on_complete([&](const Outcome& outcome) { seen = outcome.is_ok() ? found() : -1; });
  EXPECT_EQ(seen, 0);
  gate.open();
  EXPECT_EVENTUALLY(seen == 8);
  run(graph);
  EXPECT_DONE(event);
}

TEST_F(GraphEvents, ACompletionOutlivesTheEvent) {
  std::atomic_bool called{false};
  {
    Event event{external};
    const Graph graph = recording(event);
    Gate gate{*stream};
    graph.launch(*stream);
    event.on_complete([&](const Outcome&) { called = true; });
    gate.open();
  }
  EXPECT_EVENTUALLY(called.load());
  stream->synchronize();
}

TEST_F(GraphEvents, ABorrowedHandleIsRecordedToo) {
  Event owner{external};
  owner.record(*stream);
  stream->synchronize();
  Event event = Event::from_native(owner.native(), stream->device(), Ownership::borrow, external);
  const Graph graph = recording(event);
  Gate gate{*stream};
  graph.launch(*stream);
  EXPECT_PENDING(owner);
  EXPECT_PENDING(event);
  gate.open_and_wait(owner);
  stream->synchronize();
}

TEST_F(GraphEvents, AReleasedHandleIsTheCallers) {
  Event event{external};
  Graph graph = recording(event);
  Event taken = Event::from_native(event.release(), stream->device(), Ownership::take);
  graph.launch(*stream);
  taken.synchronize();
  graph = Graph{};
  stream->synchronize();
}

TEST_F(GraphEvents, WhatCannotBeANodeIsRefusedByName) {
  Event shared{EventOptions{.interprocess = true, .external = true}};
  begin_capture(*stream);
  EXPECT_ERROR(not_supported, shared.record(*stream));
  EXPECT_ERROR(not_supported, stream->wait_event(shared));
  EXPECT_SAYS(TEXT_OF(shared.record(*stream)), "cannot be a node of a graph");
  fill_memory(*stream, 2);
  const Graph graph = end_capture(*stream);
  run(graph);
  EXPECT_EQ(found(), 2) << "the refusals have left the capture as it was";
}

TEST_F(GraphEvents, AnUpdateMayRecordOtherEvents) {
  Event first{external}, second{external};
  Graph graph = recording(first);
  drop(graph.update(*stream, [&] { second.record(*stream); }));
  Gate gate{*stream};
  graph.launch(*stream);
  EXPECT_DONE(first);
  EXPECT_BEHIND(gate, second);
  stream->synchronize();
}

TEST_F(GraphEvents, TheDrawingNamesEvents) {
  Event event{external};
  const Graph graph = graph_of([&] {
    stream->wait_event(event);
    event.record(*stream);
  });
  const std::string text = graph.dot();
  EXPECT_SAYS(text, "event record");
  EXPECT_SAYS(text, "event wait");
}

TEST_F(GraphEvents, ThreadsLaunchAndQueryAtOnce) {
  Event event{external};
  const Graph graph = filling(1, event);
  on_threads(3, [&](int i) {
    repeat(50, [&] {
      if (i == 0) graph.launch(*stream);
      if (i == 1) drop(event.query());
      if (i == 2) side->wait_event(event);
    });
  });
  stream->synchronize();
  side->synchronize();
  EXPECT_DONE(event);
}

class GraphEventsOnDefaultStreams : public GraphEvents, public testing::WithParamInterface<int> {
 protected:
  /// The device's default stream, the thread's own, or a blocking stream.
  StreamRef launching() {
    if (GetParam() == 0) return default_stream();
    if (GetParam() == 1) return thread_default();
    blocking.emplace(StreamOptions{.blocking = true});
    return *blocking;
  }
  void TearDown() override {
    blocking.reset();
    GraphEvents::TearDown();
  }
  std::optional<Stream> blocking;
};

TEST_P(GraphEventsOnDefaultStreams, LaunchesThereRecordAndWait) {
  const StreamRef on = launching();
  Event recorded{external}, awaited{external};
  const Graph graph = graph_of([&] {
    stream->wait_event(awaited);
    fill_memory(*stream, 3);
    recorded.record(*stream);
  });
  Gate gate{*side};
  awaited.record(*side);
  graph.launch(on);
  EXPECT_BEHIND(gate, recorded);
  EXPECT_EQ(found(), 3);
  on.synchronize();
}
INSTANTIATE_TEST_SUITE_P(Streams, GraphEventsOnDefaultStreams, testing::Values(0, 1, 2));

class GraphEventsTwo : public TwoDevices {};

TEST_F(GraphEventsTwo, TheEventStaysOnItsDevice) {
  const Stream here{first}, there{second};
  Event event{external};
  const Graph graph = capture(here, [&] { event.record(here); });
  EXPECT_ERROR(invalid_argument, event.record(there));
  begin_capture(there);
  EXPECT_ERROR(invalid_argument, event.record(there));
  there.wait_event(event);  // which may be of another device
  const Graph other = end_capture(there);
  Gate gate{here};
  graph.launch(here);
  other.launch(there);
  EXPECT_BEHIND(gate, there);
  here.synchronize();
}

}  // namespace conformance::graph_events_cases
