// SPDX-License-Identifier: Apache-2.0
// Waits that a stop token ends.
#include <runnel/stoppable.hpp>
#include <stop_token>

#include "support.hpp"

namespace conformance::stoppable_cases {
using StoppableWaits = Conformance;

/// Waits on a thread for what the gate holds; the stop request comes while it waits.
template <class Wait>
void expect_stopped(Gate& gate, Wait wait) {
  std::stop_source source;
  std::atomic_bool begun{false}, result{true};
  std::thread thread{[&] {
    begun = true;
    result = wait(source.get_token());
  }};
  EXPECT_EVENTUALLY(begun.load());
  source.request_stop();
  thread.join();  // the gate is closed
  EXPECT_FALSE(result);
  EXPECT_CLOSED(gate);
  EXPECT_FALSE(wait(source.get_token())) << "a token that was stopped before the wait";
  gate.open();
}

TEST_F(StoppableWaits, AStopEndsTheWaitForAStream) {
  const Stream stream;
  Gate gate{stream};
  expect_stopped(gate, [&](const std::stop_token& stop) { return synchronize(stream, stop); });
  EXPECT_TRUE(synchronize(stream, std::stop_source{}.get_token()));
  EXPECT_DONE(stream);
}

TEST_F(StoppableWaits, AStopEndsTheWaitForAnEvent) {
  const Stream stream;
  Event event;
  TimedEvent timed;
  EXPECT_TRUE(synchronize(event, std::stop_token{})) << "it was never recorded";
  Gate gate{stream};
  stream.record_event(event);
  stream.record_event(timed);
  expect_stopped(gate, [&](const std::stop_token& stop) {
    return synchronize(event, stop) || synchronize(timed, stop);
  });
  EXPECT_TRUE(synchronize(event, std::stop_token{}));
  EXPECT_TRUE(synchronize(timed, std::stop_token{}));
}

TEST_F(StoppableWaits, CompleteWorkIsNotStopped) {
  const Stream stream;
  const Event event = stream.record_event();
  stream.synchronize();
  std::stop_source source;
  source.request_stop();
  EXPECT_TRUE(synchronize(stream, source.get_token()));
  EXPECT_TRUE(synchronize(event, source.get_token()));
}

TEST_F(StoppableWaits, WithoutARequestTheWaitLasts) {
  const Stream stream;
  Gate gate{stream};
  std::stop_source source;
  EXPECT_HELD(gate, EXPECT_TRUE(synchronize(stream, source.get_token())));
}

TEST_F(StoppableWaits, ExceptionsAndRefusalsAreThrown) {
  Stream stream;
  stream.launch_host_func([] { throw std::runtime_error{"mine"}; });
  EXPECT_THROW(drop(synchronize(stream, std::stop_token{})), std::runtime_error);
  EXPECT_TRUE(synchronize(stream, std::stop_token{}));
  std::atomic_bool refused{false};
  stream.launch_host_func([&] {
    refused =
        code_of([&] { return synchronize(stream, std::stop_token{}); }) == errc::not_permitted;
  });
  stream.synchronize();
  EXPECT_TRUE(refused);
  const StreamRef ended = stream;
  stream = Stream{};
  EXPECT_ERROR(invalid_handle, synchronize(ended, std::stop_token{}));
}

}  // namespace conformance::stoppable_cases
