// SPDX-License-Identifier: Apache-2.0
// Completion without waiting: on_complete() and future().
#include <dlfcn.h>

#include <semaphore>

#include "../support/standin/inspect.hpp"
#include "support.hpp"

namespace conformance::completion_cases {
using Completions = Conformance;
using CompletionsTwo = TwoDevices;

/// The outcomes that completion functions were called with, in the order of the calls.
class Outcomes {
 public:
  auto function(int name = 0) const {
    return [state = state_, name](const Outcome& outcome) {
      const std::lock_guard lock{state->mutex};
      state->told.emplace_back(name, outcome);
    };
  }
  size_t count() const {
    const std::lock_guard lock{state_->mutex};
    return state_->told.size();
  }
  [[nodiscard]] bool wait_for(size_t count_expected) const {
    return eventually([&] { return count() >= count_expected; });
  }
  std::pair<int, Outcome> operator[](size_t i) const {
    const std::lock_guard lock{state_->mutex};
    return state_->told.at(i);
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<std::pair<int, Outcome>> told;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

struct Mine : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_F(Completions, AFunctionIsCalledOnceTheWorkIsComplete) {
  Stream stream;
  Outcomes outcomes;
  Gate gate{stream};
  stream.on_complete(outcomes.function());
  ASSERT_TRUE(gate.reached());
  EXPECT_EQ(outcomes.count(), 0U);
  gate.open();
  ASSERT_TRUE(outcomes.wait_for(1));
  EXPECT_TRUE(outcomes[0].second.is_ok());
  EXPECT_EQ(outcomes[0].second.code(), nothing_thrown);
  EXPECT_RUNS(stream);
  EXPECT_EQ(outcomes.count(), 1U);
}

TEST_F(Completions, OnAnIdleStreamAnotherThreadCallsTheFunction) {
  const Stream stream;
  std::promise<std::thread::id> told;
  stream.on_complete([&](const Outcome&) { told.set_value(std::this_thread::get_id()); });
  EXPECT_NE(told.get_future().get(), std::this_thread::get_id());
}

TEST_F(Completions, ASlowFunctionHoldsUpNoLaterWork) {
  Stream stream;
  auto entered = std::make_shared<std::promise<void>>();
  std::promise<void> leave;
  stream.on_complete([entered, leaving = leave.get_future().share()](const Outcome&) {
    entered->set_value();
    leaving.wait();
  });
  entered->get_future().wait();
  EXPECT_RUNS(stream);  // while the function is still running
  leave.set_value();
}

TEST_F(Completions, FunctionsOfOneStreamAreCalledInOrder) {
  constexpr int count = 500;
  Stream stream;
  Outcomes outcomes;
  for (int i : range(count)) {
    if (i % 7 == 0) enqueue_nothing(stream);
    stream.on_complete(outcomes.function(i));
  }
  ASSERT_TRUE(outcomes.wait_for(count));
  for (int i : range(count)) ASSERT_EQ(nth(outcomes, i).first, i);
}

TEST_F(Completions, ABlockedStreamHoldsUpNoOtherStreamsFunction) {
  Stream blocked, other;
  Outcomes outcomes;
  Gate gate{blocked};
  blocked.on_complete(outcomes.function(1));
  other.on_complete(outcomes.function(2));
  ASSERT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes[0].first, 2);
  gate.open();
  ASSERT_TRUE(outcomes.wait_for(2));
  EXPECT_EQ(outcomes[1].first, 1);
}

TEST_F(Completions, AFunctionSeesWhatTheWorkWrote) {
  constexpr size_t size = 256 * kib;
  Stream stream;
  const auto sent = pattern(size);
  Bytes back(size);
  DeviceBytes on_device(size, stream);
  copy(stream, on_device, sent);
  copy(stream, back, on_device);
  std::promise<bool> equal;
  stream.on_complete(
      [&](const Outcome& outcome) { equal.set_value(outcome.is_ok() && back == sent); });
  EXPECT_TRUE(equal.get_future().get());
}

TEST_F(Completions, AFunctionGetsAHostFunctionsException) {
  Stream stream;
  Outcomes outcomes;
  stream.on_complete(outcomes.function(0));
  stream.launch_host_func([] { throw Mine{"first"}; });
  stream.on_complete(outcomes.function(1));
  stream.launch_host_func([] { throw Mine{"second"}; });
  stream.on_complete(outcomes.function(2));
  ASSERT_TRUE(outcomes.wait_for(3));
  EXPECT_TRUE(outcomes[0].second.is_ok()) << "an exception of later work was told";
  for (size_t i : {1U, 2U}) {
    EXPECT_EQ(outcomes[i].second.code(), errc::function_failed);
    EXPECT_THROW(outcomes[i].second.throw_if_failed(), Mine);
  }
  EXPECT_THROW(stream.synchronize(), Mine) << "the exception was swallowed";
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_NO_THROW(stream.future().get());
}

TEST_F(Completions, AFutureThrowsAnExceptionThatIsKeptAlready) {
  Stream stream;
  stream.launch_host_func([] { throw Mine{"kept"}; });
  ASSERT_TRUE(eventually([&] { return stream.query(); }));
  EXPECT_THROW(stream.future().get(), Mine);
  EXPECT_THROW(stream.synchronize(), Mine);
}

TEST_F(Completions, AFutureThrowsAlsoIfSynchronizeThrewFirst) {
  Stream stream;
  Gate gate{stream};
  stream.launch_host_func([] { throw Mine{"both"}; });
  const Future future = stream.future();
  gate.open();
  EXPECT_THROW(stream.synchronize(), Mine);
  EXPECT_THROW(future.get(), Mine);
}

TEST_F(Completions, AFunctionAndAFutureOutliveTheStream) {
  Outcomes outcomes;
  Gate gate;
  Future future;
  {
    Stream stream;
    gate.close_on(stream);
    stream.launch_host_func([] { throw Mine{"of a stream that is gone"}; });
    stream.on_complete(outcomes.function());
    future = stream.future();
  }
  gate.open();
  ASSERT_TRUE(outcomes.wait_for(1));
  EXPECT_THROW(outcomes[0].second.throw_if_failed(), Mine);
  EXPECT_THROW(future.get(), Mine);
}

TEST_F(Completions, AFunctionsExceptionIsThrownBySynchronize) {
  Stream stream;
  std::promise<void> left;
  stream.on_complete([](const Outcome&) { throw Mine{"from a completion function"}; });
  stream.on_complete([&](const Outcome&) { left.set_value(); });
  left.get_future().wait();
  EXPECT_THROW(stream.synchronize(), Mine);
}

TEST_F(Completions, AFunctionMayUseStreams) {
  Stream stream, next;
  Outcomes outcomes;
  PinnedInts memory{16};
  fill(stream, memory, 1);
  stream.on_complete([&, second = outcomes.function()](const Outcome&) {
    fill(next, memory, memory[0] + 1);
    next.synchronize();
    next.on_complete(second);
  });
  ASSERT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(memory[15], 2);
}

TEST_F(Completions, AFunctionMayReleaseWorkBehindIt) {
  Stream stream;
  const auto gate = std::make_shared<std::promise<void>>();
  stream.on_complete([gate](const Outcome&) { gate->set_value(); });
  stream.launch_host_func([opened = gate->get_future().share()] { opened.wait(); });
  EXPECT_COMPLETES(stream);
}

TEST_F(Completions, ADefaultStreamsFutureIsReadyOnceItIsComplete) {
  for (const StreamRef stream : {default_stream(), thread_default()}) {
    Gate gate{stream};
    const Future future = stream.future();
    EXPECT_FALSE(future.is_ready());
    gate.open();
    EXPECT_TRUE(future.wait_for(patience));
  }
}

TEST_F(Completions, ACaptureRefusesFunctionsAndFutures) {
  Stream stream;
  const Graph graph = capture(stream, [&] {
    EXPECT_ERROR(capture, stream.on_complete([](const Outcome&) {}));
    EXPECT_ERROR(capture, stream.future());
  });
  EXPECT_RUNS(stream);
}

TEST_F(Completions, TheFunctionIsMovedAndDestroyedOnce) {
  const auto alive = std::make_shared<int>(0);
  const Stream stream;
  stream.on_complete([alive, only = std::make_unique<int>(1)](const Outcome&) {});
  EXPECT_EVENTUALLY(alive.use_count() == 1);
}

/// Whoever else submits to the stream: in the order of the thread's own calls.
TEST_F(Completions, EachThreadsFunctionsOnOneStreamAreCalledInItsOrder) {
  constexpr int threads = 5, count = 1'000;
  struct Told {
    int last[4][threads] = {};  // by stream and thread; only the library's thread writes it
    int wrong = 0;
    std::atomic_int all{0};
  };
  const auto told = std::make_shared<Told>();
  Gate gate;
  {
    const Stream owned, other, lent;
    const Stream borrowed = borrow(lent);
    const StreamRef streams[] = {owned, other, borrowed, default_stream()};
    gate.close_on(owned);
    on_threads(threads, [&](int thread) {
      for (int i = 1; i <= count; ++i)
        for (int s : range(4)) {
          const auto say = [told, thread, i, s] {
            told->wrong += std::exchange(told->last[s][thread], i) != i - 1 ? 1 : 0;
            ++told->all;
          };
          if (i % 2 == 0)
            streams[s].on_complete([say](const Outcome&) { say(); });
          else
            keep(streams[s], std::shared_ptr<int>{new int{0}, [say](const int* kept) {
                                                    say();
                                                    delete kept;
                                                  }});
        }
    });
  }
  gate.open();
  EXPECT_EVENTUALLY(told->all == 4 * threads * count) << told->all;
  EXPECT_EQ(told->wrong, 0);
}

TEST_F(Completions, AGraphsFunctionsExceptionArrives) {
  Stream stream;
  std::atomic_bool throws{false};
  const Graph graph = capture(stream, [&] {
    stream.launch_host_func([&] {
      if (throws) throw Mine{"in a graph"};
    });
  });
  graph.launch(stream);
  EXPECT_NO_THROW(stream.future().get());
  throws = true;
  graph.launch(stream);
  EXPECT_THROW(stream.future().get(), Mine);
  EXPECT_THROW(stream.synchronize(), Mine);
}

TEST_F(Completions, AnEventsFunctionIsCalledOnceItHasHappened) {
  Stream stream;
  Outcomes outcomes;
  Gate gate{stream};
  Event event{stream};
  event.on_complete(outcomes.function());
  Event().on_complete(outcomes.function(7));  // was never recorded
  ASSERT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes[0].first, 7);
  gate.open();
  EXPECT_TRUE(outcomes.wait_for(2));
}

TEST_F(Completions, AnEventsFunctionMeansTheRecordAtTheCall) {
  Stream stream, blocked;
  Outcomes outcomes;
  Gate gate{blocked};
  Event event{stream};
  event.on_complete(outcomes.function(1));
  event.on_complete(outcomes.function(2));
  event.record(blocked);
  ASSERT_TRUE(outcomes.wait_for(2)) << "the later record was waited for";
  EXPECT_BEHIND(gate, event);
}

TEST_F(Completions, ADestroyedEventsFunctionIsCalled) {
  Stream stream;
  Outcomes outcomes;
  Gate gate{stream};
  {
    const Event event{stream};
    event.on_complete(outcomes.function(1));
    event.on_complete(outcomes.function(2));
    const TimedEvent timed{stream};
    timed.on_complete(outcomes.function(3));
  }
  // Had the events gone to the pool, they would now mark other work. That gets 20 ms to complete:
  // it may share a channel with the gate.
  const Stream other;
  std::vector<Event> events;
  repeat(8, [&] { events.emplace_back(other); });
  drop(events.back().synchronize_for(20ms));
  EXPECT_EQ(outcomes.count(), 0U);
  gate.open();
  EXPECT_TRUE(outcomes.wait_for(3));
}

TEST_F(Completions, ALaterEventsFunctionMayBeSubmittedFirst) {
  Stream stream;
  Outcomes outcomes;
  Gate gate;
  const Event early{stream};
  gate.close_on(stream);
  const Event late{stream};
  late.on_complete(outcomes.function());
  early.on_complete([&](const Outcome&) { gate.open(); });
  EXPECT_TRUE(outcomes.wait_for(1));
}

TEST_F(Completions, AnotherThreadsRecordOfAnEventIsAwaited) {
  Stream stream, other;
  Outcomes outcomes;
  Gate gate, blocked;
  gate.close_on(stream);
  blocked.close_on(other);
  Event event{stream};
  on_thread([&] { event.record(other); });
  event.on_complete(outcomes.function(2));
  const Event last{stream};
  last.on_complete(outcomes.function(1));
  gate.open();
  ASSERT_TRUE(outcomes.wait_for(1)) << "the completion waits for work of the other stream";
  EXPECT_EQ(outcomes[0].first, 1);
  blocked.open();
  EXPECT_TRUE(outcomes.wait_for(2));
}

/// Each completion lets the stream go on to the next event, so that as many are pending as there
/// can be. To query them all each time would take 18 million calls.
TEST_F(Completions, SixThousandEventsOfOneStreamAreNotAllQueried) {
  constexpr int count = 6000;
  const auto inspect =
      reinterpret_cast<void (*)(StandinView*)>(dlsym(RTLD_DEFAULT, "standin_inspect"));
  SKIP_IF(inspect == nullptr, "only a stand-in counts the runtime's calls");
  const auto calls = [&] {
    StandinView view{};
    inspect(&view);
    return view.calls;
  };
  Stream stream;
  std::counting_semaphore<> complete{0};
  std::atomic_int told{0};
  const long before = calls();
  repeat(count, [&] {
    stream.launch_host_func([&] { complete.acquire(); });
    stream.record_event().on_complete([&](const Outcome&) {
      complete.release();
      ++told;
    });
  });
  complete.release();
  EXPECT_EVENTUALLY(told == count);
  EXPECT_LT(calls() - before, long{count} * count / 8);
}

TEST_F(Completions, AMovedEventsFunctionIsCalled) {
  Stream stream;
  Outcomes outcomes;
  Gate gate{stream};
  Event event{stream};
  event.on_complete(outcomes.function());
  Event moved{std::move(event)};
  moved.record(Stream{});
  EXPECT_ERROR(invalid_handle, event.on_complete([](const Outcome&) {}));
  EXPECT_EQ(outcomes.count(), 0U);
  gate.open();
  EXPECT_TRUE(outcomes.wait_for(1));
}

TEST_F(Completions, AFutureIsReadyOnceTheWorkIsComplete) {
  Stream stream;
  Gate gate{stream};
  Future future = stream.future();
  const Future same = future;
  EXPECT_TRUE(future.is_valid());
  EXPECT_FALSE(future.is_ready());
  EXPECT_FALSE(future.wait_for(1ms));
  EXPECT_FALSE(future.wait_until(std::chrono::system_clock::now() + 1ms));
  gate.open();
  future.get();
  future.get();
  EXPECT_TRUE(same.wait_for(patience));
  EXPECT_TRUE(same.is_ready());
  EXPECT_TRUE(same.outcome().is_ok());
  const Future moved{std::move(future)};
  EXPECT_FALSE(future.is_valid());
  EXPECT_ERROR(invalid_handle, future.wait());
  EXPECT_ERROR(invalid_handle, Future{}.is_ready());
}

TEST_F(Completions, ALaterWrapperGetsNoExceptionOfEarlierWork) {
  for (const Ownership then : {Ownership::borrow, Ownership::take}) {
    Gate gate;
    Stream made;
    gate.close_on(made);
    made.launch_host_func([] { throw std::runtime_error{"late"}; });
    const native::stream handle = made.release();
    {
      const Stream wrapped = Stream::from_native(handle, device(), then);
      const Future future = wrapped.future();
      gate.open();
      EXPECT_TRUE(future.outcome().is_ok());
      EXPECT_NO_THROW(wrapped.synchronize());
    }
    if (then == Ownership::borrow) drop(take(handle));
  }
}

TEST_F(Completions, ALaterWrapperGetsNoExceptionOfAFunction) {
  Gate gate;
  Stream made;
  std::promise<void> may_throw;
  made.on_complete([wait = may_throw.get_future().share()](const Outcome&) {
    wait.wait();
    throw std::runtime_error{"of a completion function"};
  });
  gate.close_on(made);
  const Stream wrapped = take(made.release());
  const Future future = wrapped.future();
  may_throw.set_value();
  gate.open();
  EXPECT_TRUE(future.outcome().is_ok());  // called after the function that throws
  EXPECT_NO_THROW(wrapped.synchronize());
}

TEST_F(Completions, AFutureIsNotWaitedForWhereThatWouldNotEnd) {
  Stream stream, other;
  Gate gate{stream};
  const Future future = stream.future();
  std::promise<std::error_code> in_completion;
  other.on_complete(
      [&](const Outcome&) { in_completion.set_value(code_of([&] { future.wait(); })); });
  EXPECT_EQ(in_completion.get_future().get(), errc::not_permitted);
  gate.open();
  future.wait();
  std::promise<std::error_code> in_function;
  other.launch_host_func([&] { in_function.set_value(code_of([&] { future.wait(); })); });
  EXPECT_EQ(in_function.get_future().get(), nothing_thrown) << "it is ready";
}

TEST_F(CompletionsTwo, StreamsOfBothDevicesCallTheirFunctions) {
  const Stream here{first}, there{second};
  Outcomes outcomes;
  here.on_complete(outcomes.function());
  there.on_complete(outcomes.function());
  EXPECT_TRUE(outcomes.wait_for(2));
}

TEST_F(CompletionsTwo, AFunctionsDeviceAndStreamEndWithIt) {
  const Stream here{first}, there{second};
  Outcomes outcomes;
  here.on_complete([&](const Outcome&) { there.use(); });
  std::atomic_bool is_reset{false};
  here.on_complete([&, told = outcomes.function()](const Outcome& outcome) mutable {
    is_reset = Device::current() == Device{0} && current_stream() == Device{0}.default_stream();
    told(outcome);
  });
  ASSERT_TRUE(outcomes.wait_for(1));
  EXPECT_TRUE(is_reset);
}

}  // namespace conformance::completion_cases
