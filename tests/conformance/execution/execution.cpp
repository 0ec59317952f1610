// SPDX-License-Identifier: Apache-2.0
// Streams as schedulers of stdexec. The same cases for every backend, with the rules of
// ../support.hpp.
#include <runnel/execution.hpp>

#include <variant>

#include "../support.hpp"

namespace {
using namespace conformance;
using Senders = Conformance;
using SendersTwo = TwoDevices;

using stdexec::continues_on;
using stdexec::schedule;
using stdexec::then;
using stdexec::when_all;

struct Stopped {};
/// How an operation ended: with its values, an exception, or because it was to stop.
template <class... Values>
using Ended = std::variant<std::tuple<Values...>, std::exception_ptr, Stopped>;

template <class... Values>
struct Receiver {
  using receiver_concept = stdexec::receiver_t;
  struct Environment {
    stdexec::inplace_stop_token query(stdexec::get_stop_token_t) const noexcept { return token; }
    stdexec::inplace_stop_token token;
  };

  void set_value(Values... values) noexcept {
    ended->set_value(std::tuple<Values...>{std::forward<Values>(values)...});
  }
  void set_error(std::exception_ptr error) noexcept { ended->set_value(std::move(error)); }
  void set_stopped() noexcept { ended->set_value(Stopped{}); }
  Environment get_env() const noexcept { return {token}; }

  std::promise<Ended<Values...>>* ended;
  stdexec::inplace_stop_token token;
};

/// An operation that has not been started. `Values` are those that its sender sends.
template <class Sender, class... Values>
class Started {
 public:
  explicit Started(Sender sender, stdexec::inplace_stop_token token = {})
      : operation_{stdexec::connect(std::move(sender), Receiver<Values...>{&promise_, token})} {}
  void start() noexcept { stdexec::start(operation_); }
  [[nodiscard]] bool has_ended() const { return ended_.wait_for(0s) == std::future_status::ready; }
  /// Waits for the end.
  Ended<Values...> end() {
    if (ended_.wait_for(patience) != std::future_status::ready)
      throw std::logic_error{"the operation does not end"};
    return ended_.get();
  }
  /// Waits for the end, and throws the error if there was one.
  std::tuple<Values...> get() {
    Ended<Values...> ended = end();
    if (auto* const error = std::get_if<std::exception_ptr>(&ended)) std::rethrow_exception(*error);
    if (std::holds_alternative<Stopped>(ended)) throw std::logic_error{"the operation was stopped"};
    return std::get<0>(std::move(ended));
  }

 private:
  std::promise<Ended<Values...>> promise_;
  std::future<Ended<Values...>> ended_ = promise_.get_future();
  decltype(stdexec::connect(std::declval<Sender>(),
                            std::declval<Receiver<Values...>>())) operation_;
};

template <class... Values, class Sender>
auto operation_of(Sender sender, stdexec::inplace_stop_token token = {}) {
  return Started<Sender, Values...>{std::move(sender), token};
}
template <class Sender>
std::error_code code_of_start(Sender sender) {
  auto operation = operation_of(std::move(sender));
  operation.start();
  return code_of([&] { operation.get(); });
}

template <class Sender, class Value>
void expect_sent(Sender&& sender, Value value) {
  EXPECT_EQ(stdexec::sync_wait(std::forward<Sender>(sender)),
            std::optional{std::tuple{std::move(value)}});
}

struct Mine : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_F(Senders, SendValuesAlongAChain) {
  const Stream stream;
  auto chain = schedule(scheduler(stream)) | then([] { return 20; }) |
               then([](int x) { return std::make_unique<int>(x + 1); }) |
               then([](std::unique_ptr<int> x) { return *x * 2.5; });
  expect_sent(std::move(chain), 52.5);
}

TEST_F(Senders, SendReferences) {
  const Stream stream;
  int here = 1;
  auto chain = schedule(scheduler(stream)) | then([&]() -> int& { return here; }) |
               then([](int& x) -> int& { return ++x, x; });
  auto operation = operation_of<int&>(std::move(chain));
  operation.start();
  EXPECT_EQ(&std::get<0>(operation.get()), &here);
  EXPECT_EQ(here, 2);
}

TEST_F(Senders, CompleteAfterTheStreamsEarlierWork) {
  Stream stream;
  Gate gate{stream};
  auto operation = operation_of(schedule(scheduler(stream)));
  operation.start();
  ASSERT_TRUE(gate.reached());
  EXPECT_FALSE(operation.has_ended());
  gate.open();
  operation.get();
}

// An event that is recorded in `b` right after the start says what was enqueued there. No thread
// waits for `a`, which is blocked all the time.
TEST_F(Senders, ContinueOnAnotherStreamBehindAnEvent) {
  Stream a, b;
  std::atomic_int step{0};
  Gate gate{a};
  auto operation = operation_of<int>(schedule(scheduler(a)) | then([&] { return ++step; }) |
                                     continues_on(scheduler(b)) |
                                     then([&](int before) { return before == 1 ? ++step : -1; }));
  operation.start();
  const Event enqueued = b.record_event();
  ASSERT_TRUE(gate.reached());
  EXPECT_FALSE(gate.is_open());
  EXPECT_FALSE(enqueued.query());
  EXPECT_EQ(step, 0);
  gate.open_and_wait(enqueued);
  EXPECT_EQ(step, 2) << "the work of the second stream was enqueued later than start() returned";
  EXPECT_EQ(operation.get(), std::tuple{2});
}

/// A chain sends a number from one stream to the other.
void expect_continuation(StreamRef from, StreamRef to) {
  expect_sent(schedule(scheduler(from)) | then([] { return 1; }) | continues_on(scheduler(to)) |
                  then([](int x) { return x + 1; }),
              2);
}

TEST_F(Senders, ContinueOnTheSameStream) {
  const Stream stream;
  expect_continuation(stream, stream);
}

TEST_F(SendersTwo, ASenderContinuesOnTheOtherDevice) {
  const Stream a{first}, b{second};
  expect_continuation(a, b);
}

TEST_F(Senders, DefaultStreamsSend) { expect_continuation(default_stream(), thread_default()); }

TEST_F(Senders, WhenAllSendsTheValuesOfAll) {
  const Stream a, b;
  auto all = when_all(schedule(scheduler(a)) | then([] { return 1; }),
                      schedule(scheduler(b)) | then([] { return std::string{"two"}; }),
                      schedule(scheduler(a))) |
             then([](int x, std::string y) { return std::to_string(x) + y; });
  expect_sent(std::move(all), std::string{"1two"});
}

TEST_F(Senders, WhatFollowsWhenAllWaitsForEachBranch) {
  Stream a, b;
  std::atomic_bool is_done{false};
  Gate gate{b};
  auto operation = operation_of<bool>(
      when_all(schedule(scheduler(a)), schedule(scheduler(b)) | then([&] { is_done = true; })) |
      then([&] { return is_done.load(); }));
  operation.start();
  const Event enqueued = a.record_event();
  ASSERT_TRUE(gate.reached());
  EXPECT_FALSE(enqueued.query());
  gate.open();
  EXPECT_EQ(operation.get(), std::tuple{true});
}

TEST_F(Senders, BulkCallsEachIndexOnce) {
  const Stream stream;
  auto chain = schedule(scheduler(stream)) | then([] { return Ints(100); }) |
               stdexec::bulk(stdexec::par, 100,
                             [](int i, Ints& x) { x[static_cast<std::size_t>(i)] += i; }) |
               stdexec::bulk_chunked(stdexec::par, 100, [](int begin, int end, Ints& x) {
                 for (; begin < end; ++begin) x[static_cast<std::size_t>(begin)] *= 2;
               });
  // enqueue() accepts steps only: bulk is one.
  const auto [values] = stdexec::sync_wait(std::move(chain) | enqueue([](StreamRef) {})).value();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], 2 * i);
}

TEST_F(Senders, EnqueueIsCalledInTheOrderOfTheChain) {
  Stream a, b;
  const auto sent = pattern(10000);
  Bytes back(sent.size());
  DeviceBytes there(sent.size(), a);
  auto chain = schedule(scheduler(a)) |
               enqueue([&](StreamRef stream) { copy(stream, there, sent); }) |
               then([] { return 7; }) | continues_on(scheduler(b)) |
               enqueue([&](StreamRef stream) { copy(stream, back, there); }) |
               then([&](int x) { return back == sent ? x : 0; });
  expect_sent(std::move(chain), 7);
}

TEST_F(Senders, MixWithOtherSchedulers) {
  const Stream stream;
  const std::thread::id here = std::this_thread::get_id();
  auto work = stdexec::just(20) | continues_on(scheduler(stream)) |
              then([](int x) { return x + 1; }) | stdexec::let_value([&](int& x) {
                // the function may use streams
                return schedule(scheduler(stream)) | then([&x] { return 2 * x; });
              });
  auto back =
      stdexec::read_env(stdexec::get_delegation_scheduler) | stdexec::let_value([&](auto loop) {
        return std::move(work) | continues_on(loop) |
               then([](int x) { return std::pair{x, std::this_thread::get_id()}; });
      });
  const auto [result] = stdexec::sync_wait(std::move(back)).value();
  EXPECT_EQ(result.first, 42);
  EXPECT_EQ(result.second, here);
}

TEST_F(Senders, CanBeStartedMoreThanOnce) {
  const Stream stream;
  std::atomic_int calls{0};
  const auto chain = schedule(scheduler(stream)) | then([&] { return ++calls; });
  expect_sent(chain, 1);
  expect_sent(chain, 2);
}

TEST_F(Senders, GetTheExceptionOfTheirFunction) {
  const Stream a, b;
  bool is_called = false;
  auto operation = operation_of(schedule(scheduler(a)) | then([] { throw Mine{"mine"}; }) |
                                continues_on(scheduler(b)) | then([&] { is_called = true; }));
  operation.start();
  EXPECT_THROW(operation.get(), Mine);
  EXPECT_FALSE(is_called);
  a.synchronize();  // the exception went to the receiver, and nowhere else
  b.synchronize();
}

TEST_F(Senders, GetTheExceptionOfAnotherHostFunction) {
  const Stream stream;
  stream.launch_host_func([] { throw Mine{"mine"}; });
  auto operation = operation_of(schedule(scheduler(stream)));
  operation.start();
  EXPECT_THROW(operation.get(), Mine);
  EXPECT_THROW(stream.synchronize(), Mine) << "the sender swallowed it";
}

TEST_F(Senders, ACapturedStreamIsRefused) {
  Stream stream, other;
  bool is_called = false;
  const Graph graph = capture(stream, [&] {
    EXPECT_EQ(code_of_start(schedule(scheduler(stream)) | then([&] { is_called = true; })),
              errc::capture);
    EXPECT_EQ(code_of_start(schedule(scheduler(other)) | then([&] { is_called = true; }) |
                            continues_on(scheduler(stream))),
              errc::capture);
    EXPECT_EQ(code_of_start(when_all(schedule(scheduler(other)) | then([&] { is_called = true; }),
                                     schedule(scheduler(stream)))),
              errc::capture);
  });
  EXPECT_EQ(graph.node_count(), 0U);
  graph.launch(stream);
  stream.synchronize();
  other.synchronize();
  EXPECT_FALSE(is_called);
}

TEST_F(Senders, AnEndedStreamIsRefused) {
  std::optional<StreamScheduler> gone;
  {
    const Stream stream;
    gone = scheduler(stream);
  }
  EXPECT_EQ(code_of_start(schedule(*gone)), errc::invalid_handle);
  Stream from;
  const Stream to{std::move(from)};
  EXPECT_EQ(code_of_start(schedule(scheduler(from))), errc::invalid_handle);
  bool is_called = false;
  EXPECT_EQ(code_of_start(schedule(scheduler(to)) | then([&] { is_called = true; }) |
                          continues_on(*gone)),
            errc::invalid_handle);
  to.synchronize();
  EXPECT_FALSE(is_called) << "a part of a chain that was refused was enqueued";
}

TEST_F(Senders, AHostFunctionStartsNoSender) {
  const Stream stream, other;
  auto operation = operation_of(schedule(scheduler(other)));
  stream.launch_host_func([&] { operation.start(); });
  EXPECT_ERROR(not_permitted, operation.get());
  stream.synchronize();
}

// The second function throws while the first is enqueued, behind the gate. Nothing of the operation
// lives on in the stream.
TEST_F(Senders, AFailedStartCallsNothingLater) {
  Stream stream;
  bool is_called = false;
  auto kept = std::make_shared<int>(1);
  Gate gate{stream};
  auto operation =
      operation_of(schedule(scheduler(stream)) | then([&is_called, kept] { is_called = true; }) |
                   enqueue([](StreamRef) { throw Mine{"mine"}; }));
  operation.start();
  EXPECT_THROW(operation.get(), Mine);
  EXPECT_EQ(kept.use_count(), 1) << "a function of the operation outlives it";
  EXPECT_FALSE(gate.is_open());
  gate.open_and_wait(stream);
  EXPECT_FALSE(is_called);
}

// The function that runs when start() fails ends the operation: the receiver is not completed
// before it returns.
TEST_F(Senders, AFailedStartWaitsForAFunctionThatRuns) {
  const Stream stream;
  std::promise<void> entered, leave;
  auto operation = operation_of(schedule(scheduler(stream)) | then([&] {
                                  entered.set_value();
                                  leave.get_future().wait();
                                }) |
                                enqueue([&](StreamRef) {
                                  entered.get_future().wait();
                                  throw Mine{"mine"};
                                }));
  operation.start();
  EXPECT_FALSE(operation.has_ended());
  leave.set_value();
  EXPECT_THROW(operation.get(), Mine);
}

TEST_F(Senders, AStopBeforeTheStartEnqueuesNothing) {
  const Stream stream;
  stdexec::inplace_stop_source source;
  bool is_called = false;
  auto operation =
      operation_of(schedule(scheduler(stream)) | enqueue([&](StreamRef) { is_called = true; }),
                   source.get_token());
  source.request_stop();
  operation.start();
  EXPECT_TRUE(std::holds_alternative<Stopped>(operation.end()));
  EXPECT_FALSE(is_called);
}

TEST_F(Senders, AStopSkipsTheFunctionsThatHaveNotBegun) {
  Stream stream;
  stdexec::inplace_stop_source source;
  bool is_called = false;
  Gate gate{stream};
  auto operation = operation_of(schedule(scheduler(stream)) | then([&] { is_called = true; }),
                                source.get_token());
  operation.start();
  source.request_stop();
  gate.open();
  EXPECT_TRUE(std::holds_alternative<Stopped>(operation.end()));
  EXPECT_FALSE(is_called);
}

// Each allocation fails in turn: connecting and starting either work, or give the one error, and
// nothing is left in the stream.
TEST_F(Senders, AFailedAllocationIsAnError) {
  if (!streams_are_threads()) GTEST_SKIP() << "the runtime's own allocations would fail too";
  const Stream a, b;
  std::atomic_int calls{0};
  const auto chain = when_all(schedule(scheduler(a)) | then([&] { return ++calls; }),
                              schedule(scheduler(b)) | then([] {})) |
                     then([](int x) { return x; });
  stdexec::sync_wait(chain);  // what is made once is made now
  bool has_failed = true;
  for (long number = 1; has_failed; ++number) {
    const AllocationFault fault{number};
    try {
      stdexec::sync_wait(chain);
    } catch (const std::bad_alloc&) {
    }
    has_failed = fault.happened();
    ASSERT_LT(number, 1000);
  }
  a.synchronize();
  b.synchronize();
}

TEST_F(Senders, AnOperationThatIsNotStartedDoesNothing) {
  const Stream stream;
  auto kept = std::make_shared<int>(1);
  {
    auto operation = operation_of(schedule(scheduler(stream)) | then([kept] {}));
  }
  EXPECT_EQ(kept.use_count(), 1);
}

// docs/thread-safety.md
TEST_F(Senders, FourThreadsShareTwoStreams) {
  constexpr int rounds = 60;
  const Stream first, second;
  std::array<int, 4> counts{};  // not atomic: the chain gives the order
  on_threads(4, [&](int i) {
    int& count = counts[static_cast<std::size_t>(i)];
    for (int round = 1; round <= rounds; ++round) {
      auto chain = schedule(scheduler(first)) | then([&count] { return ++count; }) |
                   continues_on(scheduler(second)) |
                   then([&count](int before) { return before == count ? before : -1; });
      expect_sent(std::move(chain), round);
    }
  });
  EXPECT_EQ(counts, (std::array<int, 4>{rounds, rounds, rounds, rounds}));
}

// The operation state is one thread's; the stop may come from another one.
TEST_F(Senders, AnotherThreadStopsASender) {
  const Stream stream;
  int stopped = 0;
  for (int round = 0; round < 60; ++round) {
    stdexec::inplace_stop_source source;
    std::atomic_int ran{0};
    auto operation =
        operation_of(schedule(scheduler(stream)) | then([&ran] { ++ran; }), source.get_token());
    on_threads(2, [&](int i) {
      if (i == 0)
        operation.start();
      else
        source.request_stop();
    });
    const bool was_stopped = std::holds_alternative<Stopped>(operation.end());
    EXPECT_EQ(ran, was_stopped ? 0 : 1);
    stopped += was_stopped;
  }
  EXPECT_TRUE(runs(stream)) << stopped;
}

TEST_F(Senders, SchedulersCompareAsTheirStreams) {
  const Stream a, b;
  EXPECT_EQ(scheduler(a), scheduler(a));
  EXPECT_NE(scheduler(a), scheduler(b));
  EXPECT_EQ(stdexec::get_completion_scheduler<stdexec::set_value_t>(
                stdexec::get_env(schedule(scheduler(a)))),
            scheduler(a));
  EXPECT_EQ(scheduler(a).stream(), a);
}

}  // namespace
