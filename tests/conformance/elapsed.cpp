// SPDX-License-Identifier: Apache-2.0
// The time between two events.
#include "support.hpp"

namespace conformance::elapsed_cases {
using Elapsed = Conformance;
using ElapsedTwo = TwoDevices;

// A difference with an untimed event on either side does not compile.
template <class Stop, class Start>
concept measurable = requires(const Stop& stop, const Start& start) { stop - start; };
static_assert(measurable<TimedEvent, TimedEvent>);
static_assert(!measurable<Event, Event>);
static_assert(!measurable<TimedEvent, Event>);
static_assert(!measurable<Event, TimedEvent>);

TEST_F(Elapsed, GrowsWithTheWorkInBetween) {
  Stream stream;
  TimedEvent start, middle, stop;
  stream.record_event(start);
  occupy(stream, 20ms);
  stream.record_event(middle);
  occupy(stream, 20ms);
  stream.record_event(stop);
  stop.synchronize();
  EXPECT_GE(middle - start, 19ms);  // 1 ms less: the device's clock and the host's clock differ
  EXPECT_GE(stop - start, 38ms);
  EXPECT_GT(stop - start, middle - start);
  EXPECT_LT(start - stop, 0ns);
}

TEST_F(Elapsed, IsNotNegativeWithoutWorkInBetween) {
  Stream stream;
  TimedEvent start{stream}, stop{stream};
  stop.synchronize();
  EXPECT_GE(stop - start, 0ns);
  EXPECT_EQ(stop - stop, 0ns);
}

TEST_F(Elapsed, EventsThatWereNeverRecordedAreRefused) {
  Stream stream;
  TimedEvent never, recorded{stream};
  recorded.synchronize();
  EXPECT_ERROR(invalid_argument, never - recorded);
  EXPECT_ERROR(invalid_argument, recorded - never);
  EXPECT_ERROR(invalid_argument, never - never);
}

TEST_F(Elapsed, PendingEventsAreNotReadyAndDoNotBlock) {
  Stream stream;
  TimedEvent start{stream}, stop;
  start.synchronize();
  Gate gate{stream};
  stop.record(stream);
  EXPECT_ERROR(not_ready, stop - start);
  EXPECT_ERROR(not_ready, start - stop);
  gate.open_and_wait(stop);
  EXPECT_GE(stop - start, 0ns);
}

TEST_F(ElapsedTwo, EventsOfDifferentDevicesAreRefused) {
  Stream a{first}, b{second};
  TimedEvent start{a}, stop{b};
  start.synchronize();
  stop.synchronize();
  EXPECT_ERROR(invalid_argument, stop - start);
}

TEST_F(Elapsed, UsesTheLatestRecordOfAnEvent) {
  Stream stream;
  TimedEvent start{stream};
  occupy(stream, 5ms);
  TimedEvent stop{stream};
  occupy(stream, 5ms);
  stream.record_event(start);
  stream.synchronize();
  EXPECT_LT(stop - start, 0ns);
  stream.record_event(stop);
  stream.synchronize();
  EXPECT_GE(stop - start, 0ns);
}

}  // namespace conformance::elapsed_cases
