// SPDX-License-Identifier: Apache-2.0
// Events as nodes of graphs: EventOptions::external.
#include "support.hpp"

namespace {
using namespace runnel;
using conformance::code_of;
using conformance::Gate;
using conformance::text_of;

constexpr EventOptions external{.external = true};

class GraphEvents : public conformance::Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    stream.emplace();
    side.emplace();
    memory.emplace(count);
    set(0);
  }
  void TearDown() override {
    memory.reset();
    side.reset();
    stream.reset();
    Conformance::TearDown();
  }
  void set(unsigned char value) { std::fill(memory->begin(), memory->end(), value); }
  [[nodiscard]] unsigned char found() const { return memory->data()[count - 1]; }
  void fill_memory(StreamRef on, unsigned char value) {
    fill_bytes(on, memory->data(), value, count);
  }

  static constexpr std::size_t count = 4096;
  std::optional<Stream> stream, side;
  std::optional<PinnedBuffer<unsigned char>> memory;
};

TEST_F(GraphEvents, EachLaunchRecordsTheEvent) {
  Event event{external};
  const Graph graph = capture(*stream, [&] {
    fill_memory(*stream, 7);
    event.record(*stream);
  });
  EXPECT_EQ(graph.node_count(), 2U);
  EXPECT_TRUE(event.query()) << "nothing was launched yet";
  for (int i = 0; i < 3; ++i) {
    set(0);
    Gate gate;
    gate.close_on(*stream);
    graph.launch(*stream);
    EXPECT_FALSE(event.query()) << "the launch is behind the gate";
    gate.open();
    event.synchronize();
    EXPECT_TRUE(event.query());
    EXPECT_EQ(found(), 7);
  }
  stream->synchronize();
}

TEST_F(GraphEvents, AnEventHappensAtItsPlaceWithinTheGraph) {
  Event event{external};
  Gate gate;
  const Graph graph = capture(*stream, [&] {
    fill_memory(*stream, 7);
    event.record(*stream);
    gate.close_on(*stream);
  });
  graph.launch(*stream);
  event.synchronize();
  EXPECT_EQ(found(), 7);
  EXPECT_FALSE(stream->query()) << "the graph is behind its own gate";
  gate.open();
  stream->synchronize();
}

TEST_F(GraphEvents, OtherStreamsWaitForTheLaunch) {
  Event event{external};
  const Graph graph = capture(*stream, [&] {
    fill_memory(*stream, 5);
    event.record(*stream);
  });
  unsigned char seen = 0;
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  side->wait_event(event);
  side->launch_host_func([&] { seen = found(); });
  EXPECT_FALSE(side->query());
  gate.open();
  side->synchronize();
  EXPECT_EQ(seen, 5);
  stream->synchronize();
}

TEST_F(GraphEvents, TimedEventsTimeAPartOfTheGraph) {
  TimedEvent start{external}, stop{external};
  const auto work = [] { std::this_thread::sleep_for(std::chrono::milliseconds{2}); };
  const Graph graph = capture(*stream, [&] {
    start.record(*stream);
    stream->launch_host_func(work);
    stop.record(*stream);
  });
  EXPECT_ERROR(invalid_argument, stop - start) << "nothing was launched yet";
  for (int i = 0; i < 2; ++i) {
    graph.launch(*stream);
    stop.synchronize();
    EXPECT_GE(stop - start, std::chrono::milliseconds{1});
    EXPECT_LT(stop - start, conformance::patience);
  }
  TimedEvent later;
  later.record(*stream);
  later.synchronize();
  EXPECT_GE(later - stop, std::chrono::nanoseconds{0})
      << "a plain record and one of a graph compare";
}

TEST_F(GraphEvents, EachLaunchWaitsForTheRecordThatIsCurrent) {
  Event event{external};
  const Graph graph = capture(*stream, [&] {
    stream->wait_event(event);
    fill_memory(*stream, 9);
  });
  graph.launch(*stream);  // an event that was never recorded is complete
  stream->synchronize();
  EXPECT_EQ(found(), 9);
  for (int i = 0; i < 2; ++i) {
    set(0);
    unsigned char before = 1;
    Gate gate;
    gate.close_on(*side);
    side->launch_host_func([&] { before = found(); });
    event.record(*side);
    graph.launch(*stream);
    EXPECT_FALSE(stream->query());
    gate.open();
    stream->synchronize();
    EXPECT_EQ(before, 0) << "the graph has not waited";
    EXPECT_EQ(found(), 9);
  }
  side->synchronize();
}

TEST_F(GraphEvents, AnEventThatWasNeverRecordedIsCompleteWhateverOthersHaveMarked) {
  Event awaited{external}, recorded{external};
  Gate gate;
  gate.close_on(*side);
  {
    // their native events go back to the pool, and happen once the gate is open
    const Event first{*side}, second{*side};
  }
  const Graph graph = capture(*stream, [&] {
    stream->wait_event(awaited);
    fill_memory(*stream, 2);
    recorded.record(*stream);
  });
  EXPECT_TRUE(recorded.query());
  EXPECT_TRUE(awaited.query());
  graph.launch(*stream);
  EXPECT_TRUE(stream->synchronize_for(conformance::patience));
  EXPECT_EQ(found(), 2);
  gate.open();
  side->synchronize();
}

TEST_F(GraphEvents, OneGraphWaitsForAnEventOfAnother) {
  Event event{external};
  const Graph first = capture(*stream, [&] {
    fill_memory(*stream, 3);
    event.record(*stream);
  });
  unsigned char seen = 0;
  const Graph second = capture(*side, [&] {
    side->wait_event(event);
    side->launch_host_func([&] { seen = found(); });
  });
  for (int i = 0; i < 3; ++i) {
    set(0);
    seen = 0;
    Gate gate;
    gate.close_on(*stream);
    first.launch(*stream);
    second.launch(*side);
    gate.open();
    side->synchronize();
    EXPECT_EQ(seen, 3);
    stream->synchronize();
  }
}

TEST_F(GraphEvents, BranchesRecordAndWait) {
  Event early{external}, late{external};
  const Graph graph = capture(*stream, [&] {
    side->wait_stream(*stream);
    fill_bytes(*stream, memory->data(), 1, count / 2);
    early.record(*stream);
    side->wait_event(late);
    fill_bytes(*side, memory->data() + count / 2, 2, count / 2);
    stream->wait_stream(*side);
  });
  const Stream other;
  Gate gate;
  gate.close_on(other);
  late.record(other);
  graph.launch(*stream);
  early.synchronize();
  EXPECT_EQ(memory->data()[0], 1);
  EXPECT_FALSE(stream->query()) << "one branch waits for the other stream";
  gate.open();
  stream->synchronize();
  EXPECT_EQ(found(), 2);
}

TEST_F(GraphEvents, OutsideOfACaptureAnEventIsAsOthers) {
  Event event{external};
  Gate gate;
  gate.close_on(*stream);
  event.record(*stream);
  side->wait_event(event);
  EXPECT_FALSE(event.query());
  EXPECT_FALSE(side->query());
  EXPECT_FALSE(event.synchronize_for(std::chrono::milliseconds{1}));
  gate.open();
  side->synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(GraphEvents, TheCaptureAsksNothingOfTheEvent) {
  Event event{external};
  begin_capture(*stream);
  event.record(*stream);
  EXPECT_TRUE(event.query());
  event.synchronize();
  EXPECT_TRUE(event.synchronize_for(std::chrono::seconds{1}));
  fill_memory(*stream, 1);
  const Graph graph = end_capture(*stream);
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_EQ(found(), 1);
}

TEST_F(GraphEvents, APlainRecordTakesThePlaceOfALaunchsAndBack) {
  Event event{external};
  const Graph graph = capture(*stream, [&] { event.record(*stream); });
  {
    Gate gate;
    gate.close_on(*side);
    graph.launch(*stream);
    event.record(*side);
    stream->synchronize();
    EXPECT_FALSE(event.query()) << "the record on the other stream is the last one";
    graph.launch(*stream);
    event.synchronize();
    EXPECT_TRUE(event.query()) << "the launch is the last record";
    gate.open();
  }
  side->synchronize();
}

TEST_F(GraphEvents, AnEventMayBeDroppedBeforeTheGraph) {
  std::optional<Event> recorded{external}, awaited{external};
  Graph graph = capture(*stream, [&] {
    stream->wait_event(*awaited);
    fill_memory(*stream, 4);
    recorded->record(*stream);
  });
  awaited->record(*side);
  recorded.reset();
  awaited.reset();
  std::vector<Event> others;  // which would get a handle that was given back too early
  for (int i = 0; i < 8; ++i) others.emplace_back(*side);
  for (int i = 0; i < 2; ++i) {
    set(0);
    graph.launch(*stream);
    stream->synchronize();
    EXPECT_EQ(found(), 4);
  }
  side->synchronize();
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  graph = Graph{};
  for (const Event& other : others)
    EXPECT_TRUE(other.query()) << "the launch has recorded another event";
  gate.open();
  stream->synchronize();
}

TEST_F(GraphEvents, AGraphMayBeDroppedBeforeTheEvent) {
  Event event{external};
  {
    const Graph graph = capture(*stream, [&] {
      fill_memory(*stream, 6);
      event.record(*stream);
    });
    graph.launch(*stream);
  }
  event.synchronize();
  EXPECT_EQ(found(), 6);
  event.record(*side);
  EXPECT_TRUE(event.synchronize_for(conformance::patience));
  stream->synchronize();
}

TEST_F(GraphEvents, AMovedEventIsTheSame) {
  Event event{external};
  const Graph graph = capture(*stream, [&] { event.record(*stream); });
  Event moved{std::move(event)};
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  EXPECT_FALSE(moved.query());
  gate.open();
  moved.synchronize();
  stream->synchronize();
}

TEST_F(GraphEvents, CompletionFunctionsFollowTheLaunch) {
  Event event{external};
  const Graph graph = capture(*stream, [&] {
    fill_memory(*stream, 8);
    event.record(*stream);
  });
  std::atomic<int> seen{0};
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  event.on_complete([&](const Outcome& outcome) { seen = outcome.is_ok() ? found() : -1; });
  EXPECT_EQ(seen, 0);
  gate.open();
  EXPECT_TRUE(conformance::eventually([&] { return seen == 8; }));
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(GraphEvents, ACompletionOutlivesTheEvent) {
  std::atomic<bool> called{false};
  {
    Event event{external};
    const Graph graph = capture(*stream, [&] { event.record(*stream); });
    Gate gate;
    gate.close_on(*stream);
    graph.launch(*stream);
    event.on_complete([&](const Outcome&) { called = true; });
    gate.open();
  }
  EXPECT_TRUE(conformance::eventually([&] { return called.load(); }));
  stream->synchronize();
}

TEST_F(GraphEvents, ABorrowedHandleIsRecordedToo) {
  Event owner{external};
  owner.record(*stream);
  stream->synchronize();
  Event event = Event::from_native(owner.native(), stream->device(), Ownership::borrow, external);
  const Graph graph = capture(*stream, [&] { event.record(*stream); });
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  EXPECT_FALSE(owner.query());
  EXPECT_FALSE(event.query());
  gate.open();
  owner.synchronize();
  stream->synchronize();
}

TEST_F(GraphEvents, AReleasedHandleIsTheCallers) {
  Event event{external};
  Graph graph = capture(*stream, [&] { event.record(*stream); });
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
  EXPECT_NE(text_of([&] { shared.record(*stream); }).find("cannot be a node of a graph"),
            std::string::npos);
  fill_memory(*stream, 2);
  const Graph graph = end_capture(*stream);
  graph.launch(*stream);
  stream->synchronize();
  EXPECT_EQ(found(), 2) << "the refusals have left the capture as it was";
}

TEST_F(GraphEvents, AnUpdateMayRecordOtherEvents) {
  Event first{external}, second{external};
  Graph graph = capture(*stream, [&] { first.record(*stream); });
  static_cast<void>(graph.update(*stream, [&] { second.record(*stream); }));
  Gate gate;
  gate.close_on(*stream);
  graph.launch(*stream);
  EXPECT_TRUE(first.query());
  EXPECT_FALSE(second.query());
  gate.open();
  second.synchronize();
  stream->synchronize();
}

TEST_F(GraphEvents, TheDrawingNamesEvents) {
  Event event{external};
  const Graph graph = capture(*stream, [&] {
    stream->wait_event(event);
    event.record(*stream);
  });
  const std::string text = graph.dot();
  EXPECT_NE(text.find("event record"), std::string::npos) << text;
  EXPECT_NE(text.find("event wait"), std::string::npos) << text;
}

TEST_F(GraphEvents, ThreadsLaunchAndQueryAtOnce) {
  Event event{external};
  const Graph graph = capture(*stream, [&] {
    fill_memory(*stream, 1);
    event.record(*stream);
  });
  conformance::on_threads(3, [&](int i) {
    for (int n = 0; n < 50; ++n) {
      if (i == 0) graph.launch(*stream);
      if (i == 1) static_cast<void>(event.query());
      if (i == 2) side->wait_event(event);
    }
  });
  stream->synchronize();
  side->synchronize();
  EXPECT_TRUE(event.query());
}

class GraphEventsOnDefaultStreams : public GraphEvents, public testing::WithParamInterface<int> {
 protected:
  /// The device's default stream, the thread's own, or a blocking stream.
  [[nodiscard]] StreamRef launching() {
    if (GetParam() == 0) return device().default_stream();
    if (GetParam() == 1) return StreamRef::per_thread_default(device());
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
  const Graph graph = capture(*stream, [&] {
    stream->wait_event(awaited);
    fill_memory(*stream, 3);
    recorded.record(*stream);
  });
  Gate gate;
  gate.close_on(*side);
  awaited.record(*side);
  graph.launch(on);
  EXPECT_FALSE(recorded.query());
  gate.open();
  recorded.synchronize();
  EXPECT_EQ(found(), 3);
  on.synchronize();
}
INSTANTIATE_TEST_SUITE_P(Streams, GraphEventsOnDefaultStreams, testing::Values(0, 1, 2));

class GraphEventsTwo : public conformance::TwoDevices {};

TEST_F(GraphEventsTwo, TheEventStaysOnItsDevice) {
  const Stream here{first}, there{second};
  Event event{external};
  const Graph graph = capture(here, [&] { event.record(here); });
  EXPECT_ERROR(invalid_argument, event.record(there));
  begin_capture(there);
  EXPECT_ERROR(invalid_argument, event.record(there));
  there.wait_event(event);  // which may be of another device
  const Graph other = end_capture(there);
  Gate gate;
  gate.close_on(here);
  graph.launch(here);
  other.launch(there);
  EXPECT_FALSE(there.query());
  gate.open();
  there.synchronize();
  here.synchronize();
}

}  // namespace
