// SPDX-License-Identifier: Apache-2.0
// Captures and graphs.

#include "../support/foreign_capture.hpp"
#include "graph_test.hpp"

namespace conformance::graphs_cases {

class Graphs : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (IsSkipped()) return;
    source.emplace(count);
    result.emplace(count);
    std::ranges::fill(*result, 0);
    on_device.emplace(count, *stream);
    stream->synchronize();
  }
  void TearDown() override {
    on_device.reset();
    source.reset();
    result.reset();
    GraphTest::TearDown();
  }
  /// Fills the source with successive numbers.
  void number_source(int first) { count_from(*source, first); }
  bool result_is_numbered(int first) const {
    for (size_t i : range(count))
      if ((*result)[i] != first + static_cast<int>(i)) return false;
    return true;
  }
  /// Launches the graph, which copies through, and checks the result.
  void expect_copies(const Graph& graph, int first) {
    number_source(first);
    run(graph);
    EXPECT_TRUE(result_is_numbered(first));
  }
  /// Captures `work`; no graph if the runtime cannot capture allocations.
  template <class Work>
  Graph capture_allocation(Work work) {
    Graph graph;
    const auto code = code_of([&] { graph = graph_of(work); });
    EXPECT_TRUE(!code || code == errc::capture) << code.message();
    return graph;
  }
  void copy_there(StreamRef on) { copy(on, *on_device, *source); }
  void copy_back(StreamRef on) { copy(on, *result, *on_device); }
  void copy_through(StreamRef on) {
    copy_there(on);
    copy_back(on);
  }
  /// Copies on the stream, and checks the result.
  void expect_usable(StreamRef on) {
    number_source(8);
    copy_through(on);
    on.synchronize();
    EXPECT_TRUE(result_is_numbered(8));
  }

  static constexpr const char* cannot_allocate = "this runtime cannot capture allocations";
  static constexpr size_t count = 1000;
  std::optional<PinnedInts> source, result;
  std::optional<DeviceInts> on_device;
};

TEST_F(Graphs, WorkRunsWhenTheGraphIsLaunchedAndAgainEachTime) {
  number_source(1);
  const Graph graph = graph_of([&] { copy_through(current_stream()); });
  stream->synchronize();
  EXPECT_EQ((*result)[0], 0) << "captured work ran";
  for (const int first : {1, 50, 7}) expect_copies(graph, first);
}

TEST_F(Graphs, BeginAndEndCaptureDoAsCapture) {
  number_source(3);
  EXPECT_FALSE(stream->is_capturing());
  begin_capture(*stream);
  EXPECT_TRUE(stream->is_capturing());
  copy_through(*stream);
  const Graph graph = end_capture(*stream);
  EXPECT_FALSE(stream->is_capturing());
  EXPECT_NODES(graph, 2U);
  EXPECT_EQ(graph.device(), stream->device());
  run(graph);
  EXPECT_TRUE(result_is_numbered(3));
}

TEST_F(Graphs, AnyStreamOfTheDeviceLaunchesAGraph) {
  number_source(9);
  const Graph graph = graph_of([&] { copy_through(*stream); });
  const Stream other;
  graph.launch(other);
  other.synchronize();
  EXPECT_TRUE(result_is_numbered(9));
  number_source(10);
  {
    const StreamGuard on{other};
    graph.launch();
  }
  other.synchronize();
  EXPECT_TRUE(result_is_numbered(10));
  number_source(11);
  graph.launch(stream->device().default_stream());
  stream->device().default_stream().synchronize();
  EXPECT_TRUE(result_is_numbered(11));
}

TEST_F(Graphs, ALaunchComesAfterEarlierAndBeforeLaterWork) {
  Ints order;
  const Graph graph = graph_calling([&order] { order.push_back(2); });
  Gate gate{*stream};
  stream->launch_host_func([&order] { order.push_back(1); });
  graph.launch(*stream);
  stream->launch_host_func([&order] { order.push_back(3); });
  gate.open_and_wait(*stream);
  EXPECT_EQ(order, (Ints{1, 2, 3}));
}

TEST_F(Graphs, LaunchesOfOneGraphRunOneAfterTheOther) {
  const Stream other;
  std::atomic_int running{0}, most{0}, runs{0};
  const auto enter = [&] {
    const int now = ++running;
    if (now > most) most = now;
    ++runs;
  };
  const Graph graph = graph_of([&] {
    stream->launch_host_func(enter);
    fill_bytes(*stream, on_device->data(), 1, on_device->size() * sizeof(int));
    stream->launch_host_func([&] { --running; });
  });
  for (int i : range(20)) graph.launch(i % 2 == 0 ? StreamRef{*stream} : StreamRef{other});
  stream->synchronize();
  other.synchronize();
  EXPECT_EQ(runs, 20);
  EXPECT_EQ(most, 1);
}

TEST_F(Graphs, StreamsThatWaitJoinTheCapture) {
  number_source(4);
  const Graph graph = graph_of([&] {
    copy_there(*stream);
    side->wait_stream(*stream);
    EXPECT_TRUE(side->is_capturing());
    copy_back(*side);
    stream->wait_stream(*side);
  });
  EXPECT_FALSE(side->is_capturing());
  EXPECT_NODES(graph, 2U);
  EXPECT_SAYS(graph.dot(), "n0 -> n1");
  run(graph);
  EXPECT_TRUE(result_is_numbered(4));
}

TEST_F(Graphs, EventsForkAndJoin) {
  std::atomic_int at{0};
  int first = 0, second = 0, third = 0;
  const Graph graph = graph_of([&] {
    stream->launch_host_func([&] { first = ++at; });
    const Event forked = stream->record_event();
    side->wait_event(forked);
    side->launch_host_func([&] { second = ++at; });
    const Event joined = side->record_event();
    stream->wait_event(joined);
    stream->launch_host_func([&] { third = ++at; });
  });
  repeat(3, [&] {
    at = 0;
    run(graph);
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 2);
    EXPECT_EQ(third, 3);
  });
}

TEST_F(Graphs, ManyForksAndJoinsKeepTheirOrder) {
  constexpr size_t rounds = 200;
  std::vector<size_t> order;
  const Graph graph = graph_of([&] {
    for (size_t i : range(rounds)) {
      stream->launch_host_func([&order, i] { order.push_back(2 * i); });
      side->wait_stream(*stream);
      side->launch_host_func([&order, i] { order.push_back(2 * i + 1); });
      stream->wait_stream(*side);
    }
  });
  std::vector<size_t> expected(2 * rounds);
  count_from(expected, 0UL);
  repeat(2, [&] {
    order.clear();
    run(graph);
    EXPECT_EQ(order, expected);
  });
}

TEST_F(Graphs, ADiamondKeepsItsOrder) {
  const Stream left, right;
  Ints a(3), b(3), sums;
  int round = 0;
  const Graph graph = graph_of([&] {
    stream->launch_host_func([&] { ++round; });
    left.wait_stream(*stream);
    right.wait_stream(*stream);
    for (int i : range(3)) {
      left.launch_host_func([&a, &round, i] {
        nth(a, i) = round * (i == 0 ? 1 : a[static_cast<size_t>(i) - 1] + 1);
      });
      right.launch_host_func([&b, &round, i] { nth(b, i) = round + i; });
    }
    stream->wait_stream(left);
    stream->wait_stream(right);
    stream->launch_host_func([&] { sums.push_back(a[2] + b[2]); });
  });
  EXPECT_NODES(graph, 8U);
  repeat(10, [&] { run(graph); });
  Ints expected;
  for (int r = 1; r <= 10; ++r) expected.push_back(r * (r * (r + 1) + 1) + r + 2);
  EXPECT_EQ(sums, expected);
}

TEST_F(Graphs, AnUnjoinedForkIsRefusedByNameAndAllStreamsGoOn) {
  const auto fork = [&] {
    side->wait_stream(*stream);
    copy_there(*side);
  };
  EXPECT_SAYS(TEXT_OF(graph_of(fork)), "not joined");
  EXPECT_ERROR(capture, graph_of(fork));
  EXPECT_FALSE(stream->is_capturing());
  EXPECT_FALSE(side->is_capturing());
  expect_usable(*side);
}

TEST_F(Graphs, ACaptureEndsOnlyWhereItBegan) {
  const Stream other;
  EXPECT_ERROR(capture, end_capture(*stream));
  begin_capture(*stream);
  EXPECT_ERROR(capture, end_capture(other));
  EXPECT_ERROR(capture, begin_capture(*stream));
  EXPECT_SAYS(TEXT_OF(begin_capture(*stream)),
              "could not begin a capture: the stream is being captured already");
  std::error_code elsewhere;
  on_thread([&] { elsewhere = code_of([&] { drop(end_capture(*stream)); }); });
  EXPECT_EQ(elsewhere, errc::capture);
  EXPECT_TRUE(stream->is_capturing()) << "a refused end changed the capture";
  copy_through(*stream);
  EXPECT_NODES(end_capture(*stream), 2U);
}

TEST_F(Graphs, TheHostCannotWaitForACapturedStream) {
  number_source(6);
  const Graph graph = graph_of([&] {
    copy_there(*stream);
    EXPECT_ERROR(capture, stream->synchronize());
    EXPECT_ERROR(capture, stream->query());
    EXPECT_ERROR(capture, stream->synchronize_for(1s));
    copy_back(*stream);
  });
  run(graph);
  EXPECT_TRUE(result_is_numbered(6));
}

TEST_F(Graphs, TheHostCannotWaitForACapturedEvent) {
  std::optional<Event> event;
  const Graph graph = graph_of([&] {
    event = stream->record_event();
    EXPECT_ERROR(capture, event->synchronize());
    EXPECT_ERROR(capture, event->query());
    copy_through(*stream);
  });
  EXPECT_NODES(graph, 2U);
  EXPECT_ERROR(capture, event->synchronize());
  event->record(*stream);
  event->synchronize();
}

TEST_F(Graphs, ASecondObjectOfACapturedEventIsRefusedToo) {
  Event event{*stream};
  stream->synchronize();
  Event second = Event::from_native(event.native(), stream->device(), Ownership::borrow);
  begin_capture(*stream);
  event.record(*stream);
  EXPECT_ERROR(capture, second.query());
  EXPECT_ERROR(capture, second.synchronize());
  EXPECT_ERROR(capture, second.synchronize_for(1ms));
  EXPECT_ERROR(capture, second.on_complete([](const Outcome&) {}));
  copy_there(*stream);
  const Stream outside;
  event.record(outside);
  second.synchronize();
  EXPECT_DONE(second) << "it was recorded outside of the capture meanwhile";
  const Graph graph = end_capture(*stream);
  EXPECT_NODES(graph, 1U);
  expect_usable(*stream);
}

TEST_F(Graphs, AnotherThreadQueriesTheStreamAsCapturesBeginAndEnd) {
  std::atomic_bool over{false};
  std::thread asks{[&] {
    while (!over) {
      try {
        drop(stream->query());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), errc::capture) << error.what();
      }
    }
  }};
  repeat(200, [&] {
    begin_capture(*stream);
    copy_there(*stream);
    EXPECT_NODES(end_capture(*stream), 1U);
  });
  over = true;
  asks.join();
  expect_usable(*stream);
}

TEST_F(Graphs, TheDefaultStreamIsNotCaptured) {
  EXPECT_ERROR(capture, begin_capture(stream->device().default_stream()));
  EXPECT_FALSE(stream->device().default_stream().is_capturing());
}

/// A wait of the default stream for a captured stream throws, and does not hang.
TEST_F(Graphs, TheDefaultStreamJoinsNoCapture) {
  begin_capture(*stream);
  EXPECT_ERROR(capture, default_stream().wait_stream(*stream));
  drop(code_of([&] { drop(end_capture(*stream)); }));  // The runtime may have broken it.
  expect_usable(*stream);
}

TEST_F(Graphs, OtherStreamsAndThreadsGoOn) {
  const Stream other;
  number_source(5);
  begin_capture(*stream);
  copy_through(other);
  on_thread([&] { other.synchronize(); });
  EXPECT_TRUE(result_is_numbered(5));
  EXPECT_TRUE(stream->is_capturing());
  EXPECT_NODES(end_capture(*stream), 0U);
}

TEST_F(Graphs, AnExceptionAbandonsTheCapture) {
  const size_t functions = live_objects().host_functions;
  EXPECT_THROW(drop(graph_of([&] {
                 enqueue_nothing(*stream);
                 side->wait_stream(*stream);
                 copy_there(*side);
                 throw std::runtime_error{"no"};
               })),
               std::runtime_error);
  EXPECT_FALSE(stream->is_capturing());
  EXPECT_FALSE(side->is_capturing());
  EXPECT_EQ(live_objects().host_functions, functions);
  EXPECT_EQ(live_objects().graphs, 0U);
  expect_usable(*side);
}

TEST_F(Graphs, ADestroyedStreamLeavesNoCapture) {
  {
    const Stream captured;
    begin_capture(captured);
    enqueue_nothing(captured);
    side->wait_stream(captured);
  }
  EXPECT_FALSE(side->is_capturing());
  EXPECT_EQ(live_objects().host_functions, 0U);
  expect_usable(*side);
}

TEST_F(Graphs, AStreamThatWasJoinedMayEndInTheCapture) {
  number_source(5);
  const auto by_a_side_stream = [&](bool is_joined) {
    const Stream brief;
    brief.wait_stream(*stream);
    copy_through(brief);
    if (is_joined) stream->wait_stream(brief);
  };
  const Graph graph = graph_of([&] { by_a_side_stream(true); });
  run(graph);
  EXPECT_TRUE(result_is_numbered(5));
  EXPECT_ERROR(capture, graph_of([&] { by_a_side_stream(false); }));
  expect_usable(*stream);
}

TEST_F(Graphs, ACaptureEndsWithTheLastWrapperOfItsStream) {
  const native::stream handle = Stream{}.release();
  for (const bool is_wrapped_again : {false, true}) {
    {
      const Stream borrowed = borrow(handle);
      begin_capture(borrowed);
      enqueue_nothing(borrowed);
      EXPECT_ERROR(capture, device().synchronize());
    }
    EXPECT_EQ(live_objects().host_functions, 0U);
    device().synchronize();
    if (!is_wrapped_again) continue;
    const Stream taken = take(handle);
    EXPECT_FALSE(taken.is_capturing());
    expect_usable(taken);
  }
}

TEST_F(Graphs, ACaptureEndsWithTheThreadWhoseDefaultStreamItIsOf) {
  on_thread([&] {
    const StreamRef captured = StreamRef::per_thread_default(stream->device());
    begin_capture(captured);
    enqueue_nothing(captured);
  });
  EXPECT_EQ(live_objects().host_functions, 0U);
  device().synchronize();
}

TEST_F(Graphs, PinnedMemoryOfAStreamThatEndsInACaptureIsNotLost) {
  device().synchronize();
  PinnedPool::trim();
  const size_t cached = PinnedPool::statistics().cached_blocks;
  {
    const Stream captured;
    const PinnedInts memory(count);
    copy(captured, *on_device, memory);
    begin_capture(captured);
  }
  device().synchronize();
  PinnedPool::trim();
  // Fewer, if blocks that earlier tests have dropped have come back meanwhile.
  EXPECT_LE(PinnedPool::statistics().cached_blocks, cached) << "the block is kept back for good";
}

TEST_F(Graphs, HostFunctionsLiveAsLongAsTheGraph) {
  const auto kept = std::make_shared<int>(0);
  {
    const Graph graph = graph_calling([kept] { ++*kept; });
    EXPECT_EQ(kept.use_count(), 2);
    repeat(5, [&] { run(graph); });
    EXPECT_EQ(*kept, 5);
    EXPECT_EQ(kept.use_count(), 2);
  }
  EXPECT_EVENTUALLY(kept.use_count() == 1);
  EXPECT_EQ(live_objects().graphs, 0U);
}

TEST_F(Graphs, AGraphThatIsDroppedUnderWayCompletes) {
  const auto kept = shared_count();
  Gate gate{*stream};
  {
    const Graph graph = graph_calling([kept] { ++*kept; });
    graph.launch(*stream);
    graph.launch(*stream);
  }
  EXPECT_EQ(kept.use_count(), 2) << "a function was destroyed that had yet to run";
  gate.open_and_wait(*stream);
  EXPECT_EQ(*kept, 2);
  EXPECT_EVENTUALLY(kept.use_count() == 1);
}

TEST_F(Graphs, WithAHandleGivenOutALaunchIsOverBeforeTheNextOneElsewhere) {
  for (const bool is_late : {false, true})
    for (int i = 0; i < 200; ++i) {
      const Graph graph = graph_calling([] {});
      if (is_late) graph.launch(*stream);
      drop(graph.native());
      graph.launch(*stream);
      graph.launch(*side);
      side->synchronize();
      ASSERT_TRUE(quiesce_for(0ms)) << "what the first stream still does would use a dropped graph";
    }
}

TEST_F(Graphs, AQuiesceFindsTheFunctionsOfADroppedGraphDestroyed) {
  const Stream other;
  const auto kept = shared_count();
  const StreamRef standard = default_stream(), own = thread_default();
  const auto function = [&](StreamRef on) {
    return [kept, on] { on.launch_host_func([kept] { ++*kept; }); };
  };
  for (const StreamRef on : {StreamRef{*stream}, standard, own}) {
    for (int i : range(50)) {
      *kept = 0;
      Gate gate{on};
      std::optional<Graph> graph{capture(other, function(other))};
      graph->launch(on);
      if (i % 2 == 0) {
        // the old function goes after the launch
        drop(graph->update(other, function(other)));
        graph->launch(on);
      }
      if (i % 3 == 0)
        on.launch_host_func([dropped = std::make_shared<std::optional<Graph>>(std::move(graph))] {
          dropped->reset();
        });
      graph.reset();
      gate.open();
      i % 5 == 0 ? on.record_event().synchronize() : on.synchronize();
      EXPECT_TRUE(quiesce_for(patience));
      EXPECT_EQ(kept.use_count(), 1) << i << ", " << on;
      EXPECT_EQ(*kept, i % 2 == 0 ? 2 : 1);
    }
  }
}

TEST_F(Graphs, GraphsDroppedInHostFunctionsLeakNoMemory) {
  SKIP_IF(!streams_are_threads(), "the heap has the driver's memory, too");
  expect_no_growth(
      3000,
      [&] {
        auto graph = std::make_shared<Graph>(graph_calling([] {}));
        graph->launch(*stream);
        enqueue_drop(*stream, std::move(graph));
        stream->synchronize();
      },
      [] { EXPECT_TRUE(quiesce_for(patience)); });
}

TEST_F(Graphs, AGraphMayOutliveTheStreamsThatLaunchedIt) {
  const auto kept = shared_count();
  {
    Gate gate;
    std::optional<Graph> graph;
    {
      const Stream launching;
      graph = capture(launching, [&] { launching.launch_host_func([kept] { ++*kept; }); });
      gate.close_on(launching);
      graph->launch(launching);
    }
    graph.reset();
    EXPECT_EQ(kept.use_count(), 2);
    gate.open();
  }
  EXPECT_EVENTUALLY(kept.use_count() == 1);
  EXPECT_EQ(*kept, 1);
}

TEST_F(Graphs, AnExceptionArrivesAtTheLaunchingStream) {
  const Stream other;
  int runs = 0;
  const Graph graph = graph_of([&] {
    stream->launch_host_func([&runs] {
      if (++runs == 2) throw std::runtime_error{"second"};
    });
  });
  graph.launch(*stream);
  graph.launch(other);
  run(graph);
  EXPECT_THROW(other.synchronize(), std::runtime_error);
  other.synchronize();
  EXPECT_EQ(runs, 3);
}

TEST_F(Graphs, AnUpdateGivesNewArguments) {
  number_source(1);
  Graph graph = graph_of([&] { copy_through(*stream); });
  run(graph);
  PinnedInts another(count);
  count_from(another, 100);
  graph.update(*stream, [&] {
    copy(*stream, *on_device, another);
    copy_back(*stream);
  });
  run(graph);
  EXPECT_TRUE(result_is_numbered(100));
  EXPECT_FALSE(graph.update(*stream, [&] {
    fill(*stream, *on_device, 0);
    copy_back(*stream);
    enqueue_nothing(*stream);
  })) << "another shape";
  run(graph);
  EXPECT_EQ((*result)[5], 0);
  EXPECT_NODES(graph, 3U);
}

TEST_F(Graphs, ACaptureOutlivesAWaitForTheDevice) {
  number_source(4);
  const Graph graph = graph_of([&] {
    EXPECT_ERROR(capture, stream->device().synchronize());
    EXPECT_ERROR(capture, stream->device().synchronize_for(1s));
    copy_through(*stream);
    on_thread([&] { EXPECT_ERROR(capture, stream->device().synchronize()); });
  });
  stream->device().synchronize();
  graph.launch(*stream);
  stream->device().synchronize();
  EXPECT_TRUE(result_is_numbered(4));
}

TEST_F(Graphs, CapturesBeginWhileAWaitForTheDeviceWaitsForOne) {
  const Stream busy, other;
  {
    Gate gate{busy};
    // A thread of the library waits for the device, and then for it once more.
    EXPECT_FALSE(device().synchronize_for(10ms));
    on_thread([&] { EXPECT_FALSE(device().synchronize_for(10ms)); });
    begin_capture(*stream);
    gate.open_and_wait(busy);
  }
  Standstills machine;
  const auto start = Clock::now();
  on_thread([&] { repeat(3000, [&] { drop(capture(other, [] {})); }); });
  const auto took = Clock::now() - start;
  EXPECT_LT(took - machine.longest(), 1s) << "each begins a millisecond late";
  drop(end_capture(*stream));
}

/// Captures again and again while the service thread queries the stream `asked`.
template <class Capture>
void capture_beside_questions(StreamRef asked, Capture capture_once) {
  const Stream dropper;
  int round = 0;
  const auto until = Clock::now() + 1s;
  for (; round < 20'000 && !testing::Test::HasFailure() && Clock::now() < until; ++round) {
    // From this drop on, the service thread queries the stream.
    auto dropped = std::make_shared<std::optional<DeviceBytes>>(std::in_place, 16, asked);
    asked.launch_host_func([end = Clock::now() + 30us] {
      while (Clock::now() < end) {
      }
    });
    dropper.launch_host_func([dropped] { dropped->reset(); });
    std::this_thread::sleep_for(std::chrono::microseconds{round % 20});
    EXPECT_NO_ERROR(capture_once());
  }
  asked.synchronize();
  dropper.synchronize();
}

TEST_F(Graphs, AStreamJoinsACaptureWhileTheLibraryAsksForItsWork) {
  const Stream joined;
  capture_beside_questions(joined, [&] {
    drop(capture(*stream, [&] {
      joined.wait_stream(*stream);
      stream->wait_stream(joined);
    }));
  });
}

TEST_F(Graphs, ABlockingStreamIsCapturedWhileTheLibraryAsksTheDefaultStream) {
  const Stream blocking{{.blocking = true}};
  capture_beside_questions(device().default_stream(), [&] { drop(capture(blocking, [] {})); });
}

TEST_F(Graphs, ABlockingStreamIsCapturedWhileMemoryOfTheDefaultStreamIsDropped) {
  const Stream blocking{{.blocking = true}};
  const StreamRef standard = device().default_stream();
  drop(capture(blocking, [] {}));  // From now on the process is known to capture.
  std::atomic_bool is_over{false};
  std::thread dropping{[&] {
    // Without memory it goes on: some runtimes give little back beside so many captures.
    while (!is_over) drop(code_of([&] { PinnedBytes{16}.record_stream(standard); }));
  }};
  const auto until = Clock::now() + 1s;
  while (!testing::Test::HasFailure() && Clock::now() < until)
    EXPECT_NO_ERROR(drop(capture(blocking, [] {})));
  is_over = true;
  dropping.join();
}

TEST_F(Graphs, AGraphThatRunsOnAnotherThreadsDefaultStreamIsDroppedAtOnce) {
  const auto runs = std::make_shared<int>(0);
  std::optional<Graph> graph = graph_calling([runs] { ++*runs; });
  Gate gate;
  std::promise<void> launched, may_end;
  std::thread thread{[&] {
    const StreamRef own = StreamRef::per_thread_default(stream->device());
    gate.close_on(own);
    graph->launch(own);
    launched.set_value();
    may_end.get_future().wait();
    own.synchronize();
  }};
  launched.get_future().wait();
  graph.reset();
  gate.open();
  may_end.set_value();
  thread.join();
  EXPECT_EQ(*runs, 1);
  EXPECT_EVENTUALLY(runs.use_count() == 1);
}

TEST_F(Graphs, AnUpdateToAnotherShapeKeepsTheOrderOfTheLaunches) {
  enum class Launcher { open_stream, ended_stream, stream_ended_before, thread };
  for (const Launcher launcher : {Launcher::open_stream, Launcher::ended_stream,
                                  Launcher::stream_ended_before, Launcher::thread}) {
    Ints order;
    Graph graph = graph_calling([&order] { order.push_back(1); });
    Gate gate;
    std::optional<Stream> first(std::in_place);
    const auto launch_behind_gate = [&](StreamRef on) {
      gate.close_on(on);
      graph.launch(on);
    };
    std::promise<void> launched, may_end;
    std::thread thread{[&] {
      if (launcher == Launcher::thread)
        launch_behind_gate(StreamRef::per_thread_default(stream->device()));
      launched.set_value();
      may_end.get_future().wait();
    }};
    launched.get_future().wait();
    if (launcher != Launcher::thread) launch_behind_gate(*first);
    if (launcher == Launcher::stream_ended_before) first.reset();
    for (int nodes = 2; nodes < 4; ++nodes)  // the second update comes before a launch
      EXPECT_FALSE(graph.update(*stream, [&] {
        repeat(nodes,
               [&] { stream->launch_host_func([&order, nodes] { order.push_back(nodes); }); });
      }));
    if (launcher == Launcher::ended_stream) first.reset();
    const Stream other;
    graph.launch(other);
    graph.launch(*stream);
    EXPECT_PENDING(other);
    gate.open_and_wait(*stream);
    may_end.set_value();
    thread.join();
    EXPECT_EQ(order, (Ints{1, 3, 3, 3, 3, 3, 3}));
  }
}

TEST_F(Graphs, AnUpdateReplacesHostFunctions) {
  const auto old = shared_count();
  const auto now = shared_count();
  Graph graph = graph_calling([old] { ++*old; });
  Gate gate{*stream};
  graph.launch(*stream);
  graph.update(*stream, [&] { stream->launch_host_func([now] { ++*now; }); });
  graph.launch(*stream);
  gate.open_and_wait(*stream);
  EXPECT_EQ(*old, 1);
  EXPECT_EQ(*now, 1);
  EXPECT_EVENTUALLY(old.use_count() == 1);
}

TEST_F(Graphs, SeveralGraphsRunAtOnce) {
  struct Line {
    Stream on;
    int runs = 0;
    Graph graph;
  };
  std::vector<Line> lines(4);
  for (Line& line : lines)
    line.graph = capture(line.on, [&] {
      fill_bytes(line.on, on_device->data() + (&line - lines.data()) * 100, 1, 100 * sizeof(int));
      line.on.launch_host_func([&line] { ++line.runs; });
    });
  repeat(25, [&] {
    for (const Line& line : lines) line.graph.launch(line.on);
  });
  for (const Line& line : lines) {
    line.on.synchronize();
    EXPECT_EQ(line.runs, 25);
  }
}

TEST_F(Graphs, MemoryIsAllocatedAndFreedInACapture) {
  number_source(77);
  const auto work = [&] {
    DeviceInts scratch{count, *stream};
    copy(*stream, scratch, *source);
    copy(*stream, *result, scratch);
  };
  const Graph graph = capture_allocation(work);
  SKIP_IF(!graph.is_valid(), cannot_allocate);
  const std::string drawing = graph.dot();
  // Without memory pools, memory that a capture uses belongs to no graph, and is never freed.
  for (const char* const part : {"\"allocation\"", "\"free\""})
    EXPECT_EQ(says(drawing, part), device().has_memory_pools()) << part << " in\n" << drawing;
  for (const int first : {77, 78, 79}) {
    expect_copies(graph, first);
    expect_usable(*stream);
    DeviceResource{device()}.trim();  // would free what was dropped without a graph,
    PinnedPool::trim();               // and wait until it is freed
  }
}

/// The runtime may not know such memory, so that it looks like memory of the host.
TEST_F(Graphs, MemoryOfACaptureIsCopiedAndFilledByItsAddress) {
  Bytes numbers(1000);
  count_from(numbers, static_cast<unsigned char>(0));
  PinnedBytes from{1000}, back{2000};
  std::ranges::copy(numbers, from.begin());
  const auto work = [&] {
    DeviceBytes scratch{2000, *stream};
    fill_bytes(*stream, scratch.data() + 1000, 7, 1000);
    copy_bytes(*stream, scratch.data(), from.data(), 1000);
    copy_bytes(*stream, back.data(), scratch.data(), 2000);
  };
  const Graph graph = capture_allocation(work);
  SKIP_IF(!graph.is_valid(), cannot_allocate);
  repeat(2, [&] {
    std::ranges::fill(back, 1);
    run(graph);
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), back.begin()));
    EXPECT_EQ(std::count(back.begin() + 1000, back.end(), 7), 1000);
  });
}

TEST_F(Graphs, MemoryThatOutlivesItsGraphIsFreedWithItsBuffer) {
  SKIP_IF(!streams_are_threads(), "a device keeps freed memory in its pool");
  const size_t before = device().memory_info().free;
  {
    std::optional<DeviceInts> buffer;
    {
      const Graph graph = graph_of([&] { buffer.emplace(count, *stream); });
    }
    EXPECT_LT(device().memory_info().free, before);
  }
  stream->synchronize();
  EXPECT_EQ(device().memory_info().free, before);
}

TEST_F(Graphs, MemoryThatALaunchLeavesIsThatOfTheNextLaunch) {
  std::optional<DeviceInts> buffer;
  const auto work = [&] {
    buffer.emplace(count, *stream);
    copy(*stream, *buffer, *source);
  };
  const Graph graph = capture_allocation(work);
  SKIP_IF(!graph.is_valid(), cannot_allocate);
  for (int i : range(3)) {
    number_source(i);
    run(graph);
  }
  copy(*stream, *result, *buffer);
  stream->synchronize();
  EXPECT_TRUE(result_is_numbered(2));
}

TEST_F(Graphs, MemoryIsFreedInACaptureAlthoughStreamsOutsideOfItAreNamed) {
  const Stream other;
  if (!capture_allocation([&] { const DeviceInts scratch{count, *stream}; }).is_valid())
    GTEST_SKIP() << cannot_allocate;
  Gate gate{other};
  const Graph graph = capture_allocation([&] {
    DeviceInts scratch{count, *stream};
    scratch.record_stream(other);
    const Stream gone;
    scratch.record_stream(gone);
    copy(*stream, scratch, *source);
    copy(*stream, *result, scratch);
  });
  gate.open();
  EXPECT_EQ(says(graph.dot(), "\"free\""), device().has_memory_pools()) << graph.dot();
  for (const int first : {7, 8}) expect_copies(graph, first);
}

// A device's copy engine cannot reach pageable memory, and staging cannot be repeated. The host
// backend has neither.
TEST_F(Graphs, PageableCopiesAreRefusedOrRight) {
  Ints pageable(count, 3);
  std::error_code refused;
  const Graph graph = graph_of([&] {
    refused = code_of([&] { copy(*stream, *on_device, pageable); });
    copy_back(*stream);
  });
  EXPECT_TRUE(refused == errc::capture || refused == nothing_thrown) << refused.message();
  if (!refused) pageable.assign(count, 4);
  run(graph);
  if (refused == nothing_thrown) {
    EXPECT_EQ((*result)[0], 4);
  }
}

TEST_F(Graphs, BlockingCopiesOfPageableMemoryAreNodes) {
  Ints pageable(count, 3), back(count);
  const Graph graph = graph_of([&] {
    EXPECT_EQ(copy(*stream, *on_device, pageable, Pageable::block), CopyResult::blocked);
    copy(*stream, back, *on_device, Pageable::block);
  });
  EXPECT_NODES(graph, 2U);
  pageable.assign(count, 4);
  run(graph);
  EXPECT_EQ(back, pageable);
}

TEST_F(Graphs, CopiesBetweenHostMemoriesAreNodes) {
  Ints pageable(count), other(count);
  const Graph graph = graph_of([&] {
    copy(*stream, *result, *source);
    copy(*stream, pageable, *source);
    copy(*stream, other, pageable);
  });
  EXPECT_NODES(graph, 3U);
  for (int i = 1; i <= 3; ++i) {
    expect_copies(graph, i);
    EXPECT_SAME(other, *source);
  }
}

TEST_F(Graphs, ABatchMayHaveCopiesBetweenHostMemories) {
  Ints pageable(count);
  number_source(5);
  const Graph graph = graph_of([&] {
    copy_batch(*stream,
               std::vector{copy_operation(*on_device, *source), copy_operation(pageable, *source)});
    copy_back(*stream);
  });
  run(graph);
  EXPECT_TRUE(result_is_numbered(5));
  EXPECT_SAME(pageable, *source);
}

TEST_F(Graphs, FillsOfPageableMemoryAreNodes) {
  Ints pageable(count);
  const Graph graph = graph_of([&] { fill(*stream, pageable, 7); });
  EXPECT_NODES(graph, 1U);
  repeat(2, [&] {
    pageable.assign(count, 1);
    run(graph);
    EXPECT_EQ(pageable, Ints(count, 7));
  });
}

TEST_F(Graphs, AnEmptyGraphAndAMovedFromOneSaySo) {
  Graph graph = graph_of([] {});
  EXPECT_NODES(graph, 0U);
  run(graph);
  const Graph moved{std::move(graph)};
  EXPECT_FALSE(graph.is_valid());
  EXPECT_TRUE(moved.is_valid());
  EXPECT_ERROR(invalid_handle, graph.launch(*stream));
  EXPECT_ERROR(invalid_handle, graph.dot());
  EXPECT_ERROR(invalid_handle, Graph{}.launch(*stream));
}

TEST_F(Graphs, ABrokenCaptureSaysSo) {
  const Stream other;
  const Event outside = other.record_event();
  other.synchronize();
  begin_capture(*stream);
  copy_there(*stream);
  EXPECT_ERROR(capture, stream->wait_event(outside));
  EXPECT_SAYS(TEXT_OF(end_capture(*stream)),
              "a call that could not make a stream wait for an event has broken it");
  EXPECT_FALSE(stream->is_capturing());
  expect_usable(*stream);
}

/// Such a capture gives no graph that could use the buffer.
TEST_F(Graphs, ABufferThatIsDroppedInABrokenCaptureIsFreed) {
  constexpr std::size_t bytes = size_t{64} << 20;
  const Stream other;
  const Event outside = other.record_event();
  other.synchronize();
  std::optional<DeviceBuffer<std::byte>> dropped{std::in_place, bytes, *stream};
  const std::size_t free = device().memory_info().free;
  begin_capture(*stream);
  EXPECT_ERROR(capture, stream->wait_event(outside));
  dropped.reset();
  EXPECT_ERROR(capture, end_capture(*stream));
  expect_usable(*stream);
  EXPECT_EVENTUALLY(device().memory_info().free >= free + bytes / 2);
}

/// Whether each text says so.
void expect_all_say(const std::vector<std::string>& texts, const char* part) {
  for (const std::string& text : texts) EXPECT_SAYS(text, part);
}

TEST_F(Graphs, CallsInABrokenCaptureNameTheCallThatHasBrokenIt) {
  const Stream other, joined;
  const Event outside = other.record_event();
  const Graph graph = capture(other, [&] { enqueue_nothing(other); });
  PinnedInts third(count);
  Ints pageable(count);
  other.synchronize();
  begin_capture(*stream);
  joined.wait_stream(*stream);
  const std::string first = TEXT_OF(stream->wait_event(outside));
  expect_all_say({first}, "what it waits for is no part of the capture, which is broken now");
  for (const StreamRef on : {StreamRef{*stream}, StreamRef{joined}}) {
    const std::vector<std::string> texts{
        TEXT_OF(copy_there(on)),
        TEXT_OF(copy(on, third, *source)),
        TEXT_OF(copy(on, *on_device, pageable)),
        TEXT_OF(fill(on, *on_device, 1)),
        TEXT_OF(on.launch_host_func([] {})),
        TEXT_OF(on.wait_event(outside)),
        TEXT_OF(on.wait_stream(other)),
        TEXT_OF(on.record_event()),
        TEXT_OF(TimedEvent{on}),
        TEXT_OF(on.query()),
        TEXT_OF(on.synchronize()),
        TEXT_OF(on.on_complete([](const Outcome&) {})),
        TEXT_OF(begin_capture(on)),
        TEXT_OF(graph.launch(on)),
    };
    expect_all_say(texts,
                   "an earlier call, which could not make a stream wait for an event, has broken "
                   "the capture: end it, and capture");
  }
  EXPECT_ERROR(capture, end_capture(*stream));
  expect_usable(*stream);
  expect_usable(joined);
}

TEST_F(Graphs, AWaitForAnOutsideStreamSaysWhatBreaksTheCapture) {
  const Stream other;
  enqueue_nothing(other);
  std::vector<std::string> texts;
  try {
    drop(graph_of([&] { texts.push_back(TEXT_OF(stream->wait_stream(other))); }));
  } catch (const Error& error) {
    expect_all_say({error.what()},
                   "a call that could not make a stream wait for another has broken it");
  }
  expect_all_say(texts, "what it waits for is no part of the capture");
  other.synchronize();
  expect_usable(*stream);
}

TEST_F(Graphs, TheCapturingThreadMayWaitForWhatIsNotCaptured) {
  const Stream other;
  const Event outside = other.record_event();
  number_source(3);
  begin_capture(*stream);
  copy_through(*stream);
  other.synchronize();
  EXPECT_DONE(other);
  EXPECT_COMPLETES(other);
  outside.synchronize();
  EXPECT_DONE(outside);
  EXPECT_COMPLETES(outside);
  Gate gate{other};
  const Event later = other.record_event();
  EXPECT_PENDING(other);
  EXPECT_FALSE(other.synchronize_for(1ms));
  EXPECT_FALSE(later.synchronize_for(1ms));
  gate.open_and_wait(later);
  end_capture(*stream).launch(*stream);
  stream->synchronize();
  EXPECT_TRUE(result_is_numbered(3));
}

TEST_F(Graphs, WorkOnTheDefaultStreamBreaksNoCaptureOfABlockingStream) {
  const Stream blocking{device(), {.blocking = true}}, other;
  const StreamRef standard = default_stream();
  Event event = other.record_event();
  DeviceInts memory{count, other};
  other.synchronize();
  std::optional of_standard{DeviceInts{count, standard}};
  standard.synchronize();
  begin_capture(blocking);
  fill(blocking, *on_device, 1);
  EXPECT_FALSE(standard.is_capturing());
  of_standard.reset();  // freed after the capture
  const DeviceResource resource{device()};
  resource.trim();
  if (code_of([&] { drop(resource.reserved()); }) == nothing_thrown)
    resource.set_release_threshold(device().memory_info().total / 2);
  // CUDA and HIP refuse all of these, the host backend none.
  const auto may_be_refused = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), errc::capture);
      EXPECT_SAYS(error.what(), "a blocking stream is being captured");
    }
  };
  may_be_refused([&] { standard.wait_event(event); });
  may_be_refused([&] { other.wait_stream(standard); });
  may_be_refused([&] { standard.record_event(event); });
  may_be_refused([&] { fill(standard, memory, 1); });
  may_be_refused([&] { const DeviceInts scratch{count, standard}; });
  may_be_refused([&] { standard.launch_host_func([] {}); });
  may_be_refused([&] { drop(standard.query()); });
  may_be_refused([&] { drop(standard.priority()); });
  may_be_refused([&] { standard.synchronize(); });
  EXPECT_NODES(end_capture(blocking), 1U);
  fill(standard, memory, 1);
  standard.synchronize();
  expect_usable(blocking);
}

TEST_F(Graphs, WaitsOfAnotherThreadLeaveNoStreamCaptured) {
  SKIP_IF(!streams_are_threads() && !says(device().name(), "Stand-in"),
          "a device's driver crashed once in some 5,000 captures that were broken as "
          "they began or ended");
  std::atomic_bool is_over{false};
  std::thread waiting{[&] {
    while (!is_over)
      if (code_of([&] { device().synchronize(); }) == errc::capture) std::this_thread::yield();
  }};
  repeat(200, [&] {
    try {
      drop(graph_of([&] { fill(*stream, *on_device, 1); }));
    } catch (
        const Error& error) {  // a wait that is about to begin when the capture begins breaks it
      EXPECT_EQ(error.code(), errc::capture);
    }
  });
  is_over = true;
  waiting.join();
  EXPECT_FALSE(stream->is_capturing());
  device().synchronize();
  expect_usable(*stream);
  drop(graph_of([&] { fill(*stream, *on_device, 1); }));
}

TEST_F(Graphs, TwoCapturesThatMeetAreBothBroken) {
  const Stream other;
  DeviceInts memory{count, other};
  other.synchronize();
  begin_capture(*stream);
  begin_capture(other);
  fill(*stream, *on_device, 1);
  fill(other, memory, 1);
  expect_all_say({TEXT_OF(other.wait_stream(*stream))},
                 "the streams are in two captures, which cannot become one");
  expect_all_say(
      {TEXT_OF(fill(*stream, *on_device, 1)), TEXT_OF(fill(other, memory, 1))},
      "an earlier call, which could not make a stream wait for another, has broken the capture");
  EXPECT_ERROR(capture, end_capture(*stream));
  EXPECT_ERROR(capture, end_capture(other));
  expect_usable(*stream);
  expect_usable(other);
}

TEST_F(Graphs, TheDrawingNamesTheNodes) {
  const Graph graph = graph_of([&] {
    fill(*stream, *on_device, 1);
    copy_back(*stream);
    enqueue_nothing(*stream);
  });
  const std::string text = graph.dot();
  for (const char* const part :
       {"digraph", "\"fill\"", "\"copy\"", "\"host function\"", "n0 -> n1", "n1 -> n2"})
    EXPECT_SAYS(text, part);
  EXPECT_TRUE(text.ends_with("}\n")) << text;
}

using GraphsTwo = TwoDevices;

TEST_F(GraphsTwo, ADeviceWhoseStreamHasJoinedACaptureIsProtected) {
  const Stream captured{first}, joined{second}, apart{second};
  DeviceInts memory{100, joined};
  std::optional<Graph> graph{capture(joined, [&] { fill(joined, memory, 1); })};
  graph->launch(joined);
  joined.synchronize();
  begin_capture(captured);
  second.synchronize();  // it does not take part yet
  joined.wait_stream(captured);
  fill(joined, memory, 2);
  EXPECT_ERROR(capture, second.synchronize());
  EXPECT_ERROR(capture, second.synchronize_for(1ms));
  graph->launch(apart);
  graph.reset();
  apart.synchronize();
  captured.wait_stream(joined);
  EXPECT_NODES(end_capture(captured), 1U);
  second.synchronize();
}

/// Captures that other code has begun, as torch.cuda.graph does. What the library adds runs at each
/// launch. A runtime without user objects cannot own functions: they are refused then.
class ForeignGraphs : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    SKIP_IF(test_support::vendor_function("StreamBeginCapture") == nullptr,
            "every capture is one of the library");
  }
  static bool can_own() { return test_support::vendor_function("UserObjectCreate") != nullptr; }
  /// `work(stream)` is captured and `is_right()` after each of two launches, in each mode; or it is
  /// refused where that may be, and the capture goes on.
  template <class Work, class Check>
  void expect_replay(const char* what, bool may_be_refused, Work work, Check is_right) {
    for (const auto mode :
         {test_support::CaptureMode::global, test_support::CaptureMode::own_thread,
          test_support::CaptureMode::relaxed}) {
      SCOPED_TRACE(std::string{what} + ", mode " + std::to_string(static_cast<int>(mode)));
      test_support::ForeignCapture captured{mode};
      const auto code = code_of([&] { work(StreamRef::from_native(captured.stream())); });
      EXPECT_EQ(captured.state(), captured.intact);
      EXPECT_TRUE(captured.end());
      if (may_be_refused && code == errc::capture) continue;
      EXPECT_EQ(code, nothing_thrown);
      for (const int first : {5, 9}) {
        number_source(first);
        std::ranges::fill(*result, 0);
        EXPECT_TRUE(captured.replay());
        EXPECT_TRUE(is_right(first));
      }
    }
  }
};

TEST_F(ForeignGraphs, WhatIsCapturedRunsAtEachLaunch) {
  const auto arrived = [&](int first) { return result_is_numbered(first); };
  Ints from(count), to(count);
  int calls = 0;
  Stream helper;
  expect_replay("copies", false, [&](StreamRef s) { copy_through(s); }, arrived);
  expect_replay(
      "a batch", false,
      [&](StreamRef s) {
        const size_t half = count / 2 * sizeof(int);
        const CopyOperation up[] = {
            {on_device->data(), source->data(), half},
            {on_device->data() + count / 2, source->data() + count / 2, half}};
        copy_batch(s, up);
        copy_back(s);
      },
      arrived);
  expect_replay(
      "fork and join", false,
      [&](StreamRef s) {
        helper.wait_stream(s);
        copy_through(helper);
        s.wait_stream(helper);
      },
      arrived);
  expect_replay(
      "memory of the graph", true,  // older runtimes cannot capture allocations

      [&](StreamRef s) {
        DeviceInts block{count, s};
        copy(s, block, *source);
        copy(s, *result, block);
      },
      arrived);
  expect_replay(
      "a host function", !can_own(),
      [&](StreamRef s) {
        copy_through(s);
        s.launch_host_func([&] { ++calls; });
      },
      [&](int first) { return arrived(first) && std::exchange(calls, 0) == 1; });
  expect_replay(
      "copies on the host, and a fill", !can_own(),
      [&](StreamRef s) {
        fill(s, to, 3);
        copy(s, *result, *source);
        copy(s, to, from);
      },
      [&](int first) {
        const bool is_right = arrived(first) && to == from;
        std::ranges::fill(from, first);
        return is_right;
      });
}

TEST_F(ForeignGraphs, AnExternalEventAndAKeptObjectLiveAsLongAsTheGraph) {
  SKIP_IF(!can_own(), "nothing would own them");
  const auto kept = std::make_shared<int>(1);
  Event external{EventOptions{.external = true}};
  {
    test_support::ForeignCapture captured{test_support::CaptureMode::global};
    {
      const StreamRef s = StreamRef::from_native(captured.stream());
      copy_through(s);
      external.record(s);
      keep(s, std::shared_ptr<int>{kept});
      s.launch_host_func([copy = kept] {});
    }
    ASSERT_TRUE(captured.end());
    EXPECT_EQ(kept.use_count(), 3);
    EXPECT_TRUE(captured.replay());
    EXPECT_TRUE(captured.replay());
    EXPECT_DONE(external);
    external = Event{};  // the graph still owns the native event
    EXPECT_TRUE(captured.replay());
    EXPECT_EQ(kept.use_count(), 3);
  }
  EXPECT_EVENTUALLY(kept.use_count() == 1);
}

TEST_F(ForeignGraphs, AnExceptionReachesTheStreamOfTheCapture) {
  SKIP_IF(!can_own(), "nothing would own the function");
  test_support::ForeignCapture captured{test_support::CaptureMode::global};
  const Stream borrowed = Stream::from_native(captured.stream(), Ownership::borrow);
  borrowed.launch_host_func([] { throw std::runtime_error{"first"}; });
  ASSERT_TRUE(captured.end());
  repeat(2, [&] {
    EXPECT_TRUE(captured.replay());
    EXPECT_THROW(borrowed.synchronize(), std::runtime_error);
  });
  borrowed.synchronize();
}

TEST_F(ForeignGraphs, LaunchesOfTheNativeGraphRunItsFunctions) {
  const Stream own, other;
  int runs = 0;
  const Graph graph = capture(own, [&] {
    own.launch_host_func([&] {
      if (++runs == 3) throw std::runtime_error{"third"};
    });
  });
  const auto launch_elsewhere = [&] {
    EXPECT_EQ(test_support::vendor("GraphLaunch", graph.native_executable(), other.native()), 0);
    other.synchronize();
  };
  launch_elsewhere();
  graph.launch(own);
  own.synchronize();
  EXPECT_EQ(runs, 2);
  launch_elsewhere();
  EXPECT_THROW(own.synchronize(), std::runtime_error);
  // A launch of the library still counts as a writer of host memory.
  Bytes bytes(64);
  DeviceBytes there{64, own};
  Gate gate{own, {.writes_host_memory = false}};
  graph.launch(own);
  EXPECT_EQ(copy_bytes(own, there.data(), bytes.data(), 64), CopyResult::staged);
  gate.open_and_wait(own);
  EXPECT_EQ(runs, 4);
}

TEST_F(ForeignGraphs, APendingLaunchOfOtherCodeIsNotTakenForOneOfTheLibrary) {
  const Stream captured, other, own;
  std::atomic_int runs{0};
  std::promise<void> second;
  const Graph graph = capture(captured, [&] {
    captured.launch_host_func([&] {
      if (++runs != 2) return;
      second.get_future().wait_for(patience);
      throw std::runtime_error{"second"};
    });
  });
  Bytes bytes(64);
  DeviceBytes there{64, own};
  own.synchronize();
  Gate before{other, {.writes_host_memory = false}};
  EXPECT_EQ(test_support::vendor("GraphLaunch", graph.native_executable(), other.native()), 0);
  own.wait_stream(other);
  graph.launch(own);
  before.open_and_wait(other);
  captured.synchronize();
  EXPECT_FALSE(quiesce_for(0ms)) << "the library's own launch is not over";
  EXPECT_EQ(copy_bytes(own, there.data(), bytes.data(), 64), CopyResult::staged);
  second.set_value();
  EXPECT_THROW(own.synchronize(), std::runtime_error);
  captured.synchronize();
  EXPECT_EVENTUALLY(quiesce_for(0ms));
}

TEST_F(ForeignGraphs, AGraphBecomesANodeBesideACaptureOfTheLibraryOrNone) {
  SKIP_IF(!can_own(), "a graph cannot be captured");
  const Stream own, other;
  DeviceInts there(count, own);
  const Graph graph = capture(own, [&] { fill(own, there, 7); });
  for (const bool beside : {true, false}) {
    fill(own, there, 0);
    own.synchronize();
    test_support::ForeignCapture captured{test_support::CaptureMode::own_thread};
    if (beside) begin_capture(other);
    graph.launch(StreamRef::from_native(captured.stream()));
    if (beside) drop(end_capture(other));
    ASSERT_TRUE(captured.end());
    EXPECT_TRUE(captured.replay());
    EXPECT_EQ(get(own, there, 0), 7);
  }
}

TEST_F(ForeignGraphs, TheKindOfAStreamIsLearntAfterTheCapture) {
  test_support::ForeignCapture captured{test_support::CaptureMode::global};
  const Stream borrowed = Stream::from_native(captured.stream(), Ownership::borrow);
  EXPECT_EQ(borrowed.device(), device());
  EXPECT_ERROR(capture, borrowed.is_blocking());
  EXPECT_EQ(captured.state(), captured.intact);
  captured.end();
  EXPECT_FALSE(borrowed.is_blocking());
  EXPECT_EQ(StreamRef{borrowed}, StreamRef::from_native(captured.stream()));
}

/// An end that nobody has marked lets the library wait for the devices, which would break captures.
TEST_F(Graphs, ACaptureIsNotBrokenByWaitsOfTheLibrary) {
  const Stream other, owner;
  std::atomic_bool is_over{false};
  std::thread ends{[&] {
    repeat(40, [&] {
      const native::stream handle = Stream{}.release();
      auto borrowed = std::make_shared<Stream>(borrow(handle));
      {
        DeviceBytes used{4096, owner};
        used.record_stream(*borrowed);
        enqueue_drop(other, std::move(borrowed));
        other.synchronize();
      }
      drop(take(handle));
    });
    is_over = true;
  }};
  int captures = 0, broken = 0;
  for (; !is_over; ++captures) {
    const Stream captured;
    const auto capture = [&] {
      begin_capture(captured);
      enqueue_nothing(captured);
      drop(end_capture(captured));
    };
    if (code_of(capture)) ++broken;
  }
  ends.join();
  EXPECT_EQ(broken, 0) << "of " << captures;
  // A wait that is still requested would break the next capture of other code.
  EXPECT_TRUE(other.device().synchronize_for(20s));
}

}  // namespace conformance::graphs_cases
