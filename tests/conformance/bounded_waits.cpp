// SPDX-License-Identifier: Apache-2.0
// Each wait of the host has a form that ends: for streams, the current stream, events, devices and
// leases.
#include <runnel/graph.hpp>

#include "support.hpp"

namespace conformance::bounded_waits_cases {
using SynchronizeFor = Conformance;
using SynchronizeForTwo = TwoDevices;
using AcquireFor = Conformance;

/// Each bounded wait of `waitable`, with a time that is over and with one that suffices once the
/// gate is open.
template <class Waitable>
void expect_bounded(const Waitable& waitable, Gate& gate) {
  EXPECT_FALSE(waitable.synchronize_for(1ms));
  EXPECT_FALSE(waitable.synchronize_for(0ns));
  EXPECT_FALSE(waitable.synchronize_for(std::chrono::hours{-1}));
  EXPECT_FALSE(waitable.synchronize_for(std::chrono::duration<double>::min()));
  EXPECT_FALSE(waitable.synchronize_until(Clock::now() + 1ms));
  EXPECT_FALSE(waitable.synchronize_until(std::chrono::system_clock::now() + 1ms));
  EXPECT_FALSE(waitable.synchronize_until(Clock::time_point::min()));
  gate.open();
  EXPECT_TRUE(waitable.synchronize_until(std::chrono::system_clock::now() + patience));
  EXPECT_TRUE(waitable.synchronize_until(Clock::time_point::max()));
  EXPECT_TRUE(waitable.synchronize_for(std::chrono::hours::max()));
  EXPECT_TRUE(waitable.synchronize_for(std::chrono::nanoseconds::max()));
}

TEST_F(SynchronizeFor, AStreamBehindAGateTimesOut) {
  const Stream stream;
  Gate gate{stream};
  expect_bounded(stream, gate);
  EXPECT_TRUE(stream.synchronize_for(0ns));
}

TEST_F(SynchronizeFor, AnEventBehindAGateTimesOut) {
  const Stream stream;
  Gate gate{stream};
  expect_bounded(Event{stream}, gate);
}

TEST_F(SynchronizeFor, ADeviceBehindAGateTimesOut) {
  const Stream stream;
  Gate gate{stream};
  expect_bounded(device(), gate);
  EXPECT_DONE(stream);
}

/// Whether a wait that has begun ends although more work is submitted meanwhile: `wait` waits, and
/// `submit_more` submits behind a second gate. The wait gets `head_start` to begin. If
/// it begins later, it also waits for the second gate, and the result is false.
template <class Wait, class SubmitMore>
[[nodiscard]] bool ends_with_the_first_gate(StreamRef stream, Wait wait, SubmitMore submit_more,
                                            std::chrono::milliseconds head_start) {
  Gate first, second;
  first.close_on(stream);
  const auto prepared = wait();
  std::future<bool> ended = std::async(std::launch::async, prepared);
  std::this_thread::sleep_for(head_start);
  second.close_on(stream);
  submit_more();
  first.open();
  const bool has_ended = ended.wait_for(patience / 4) == std::future_status::ready;
  second.open();
  return ended.get() && has_ended;
}
/// The same, tried again with more time, because a busy machine may begin the wait late.
template <class Wait, class SubmitMore>
[[nodiscard]] bool ends_with_the_first_gate(StreamRef stream, Wait wait, SubmitMore submit_more) {
  return ends_with_the_first_gate(stream, wait, submit_more, 20ms) ||
         ends_with_the_first_gate(stream, wait, submit_more, 2s);
}

TEST_F(SynchronizeFor, AStreamsLaterWorkIsNotAwaited) {
  const Stream stream;
  EXPECT_TRUE(ends_with_the_first_gate(
      stream, [&] { return [&] { return stream.synchronize_for(patience); }; }, [] {}));
}

TEST_F(SynchronizeFor, AnEventsLaterRecordIsNotAwaited) {
  const Stream stream;
  Event event;
  const auto wait = [&] {
    event.record(stream);
    return [&] { return event.synchronize_for(patience); };
  };
  EXPECT_TRUE(ends_with_the_first_gate(stream, wait, [&] { event.record(stream); }));
}

TEST_F(SynchronizeFor, AWaitThatTimedOutBreaksNoLaterCapture) {
  const Stream stream, captured;
  Gate gate{stream};
  // a thread of the library waits once more for the second one
  repeat(2, [&] { EXPECT_FALSE(device().synchronize_for(1ms)); });
  begin_capture(captured);
  gate.open_and_wait(stream);
  std::this_thread::sleep_for(20ms);  // for that thread, which must not ask the runtime now
  enqueue_nothing(captured);
  EXPECT_NODES(end_capture(captured), 1U);
  EXPECT_TRUE(device().synchronize_for(patience));
}

TEST_F(SynchronizeFor, TheCurrentStreamBehindAGateTimesOut) {
  const Stream stream;
  const StreamGuard with{stream};
  Gate gate{stream};
  EXPECT_FALSE(synchronize_for(1ms));
  EXPECT_FALSE(synchronize_until(Clock::now() + 1ms));
  gate.open();
  EXPECT_TRUE(synchronize_for(patience));
}

TEST_F(SynchronizeFor, AfterATimeoutADevicesNextWaitCoversNewWork) {
  const Stream stream;
  {
    Gate gate{stream};
    EXPECT_FALSE(device().synchronize_for(1ms));  // a thread of the library still waits
  }
  int done = 0;
  stream.launch_host_func([&] { done = 1; });
  EXPECT_TRUE(device().synchronize_for(patience));
  EXPECT_EQ(done, 1) << "the wait was that of an earlier call";
}

TEST_F(SynchronizeFor, EightThreadsWaitForOneDevice) {
  const Stream stream;
  std::atomic_int done{0};
  on_threads(8, [&](int) {
    repeat(20, [&] {
      std::atomic_bool mine{false};
      stream.launch_host_func([&] { mine = true; });
      EXPECT_TRUE(device().synchronize_for(patience));
      EXPECT_TRUE(mine);
      ++done;
    });
  });
  EXPECT_EQ(done, 160);
}

TEST_F(SynchronizeForTwo, AnotherDevicesWorkIsNotAwaited) {
  const Stream stream{second};
  Gate gate{stream};
  EXPECT_COMPLETES(first);
  expect_bounded(second, gate);
}

TEST_F(SynchronizeFor, IsRefusedInAHostFunction) {
  StreamPool pool{device(), {.size = 1, .max = 1}};
  const Stream stream;
  const Event complete{stream};
  std::promise<std::vector<std::error_code>> codes;
  stream.launch_host_func([&] {
    codes.set_value({code_of([&] { return stream.synchronize_until(Clock::now()); }),
                     code_of([&] { return complete.synchronize_for(1s); }),
                     code_of([&] { return device().synchronize_for(1s); }),
                     code_of([&] { return pool.acquire_for(1s); })});
  });
  for (const std::error_code code : codes.get_future().get()) EXPECT_EQ(code, errc::not_permitted);
}

TEST_F(AcquireFor, TimesOutWhileAllStreamsAreLeased) {
  StreamPool pool{device(), {.size = 1, .max = 2}};
  std::optional<StreamLease> one = pool.acquire_for(1ms);
  std::optional<StreamLease> two = pool.acquire_until(std::chrono::system_clock::now());
  ASSERT_TRUE(one && two);
  EXPECT_EQ(pool.growth(), 1U);
  EXPECT_FALSE(pool.acquire_for(1ms));
  EXPECT_FALSE(pool.acquire_until(Clock::now() + 1ms));
  const StreamRef first_leased = *one;
  std::thread returner{[&] { one.reset(); }};
  const std::optional<StreamLease> next = pool.acquire_for(patience);
  returner.join();
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, first_leased);
  StreamPool moved{std::move(pool)};
  EXPECT_ERROR(invalid_handle, pool.acquire_for(1s));  // NOLINT
}

}  // namespace conformance::bounded_waits_cases
