// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

namespace conformance::wait_stream_cases {
using WaitStream = Conformance;
using WaitStreamTwo = TwoDevices;

TEST_F(WaitStream, LaterWorkRunsAfterTheOtherStream) {
  Stream a, b;
  expect_waits(a, b, [&] { b.wait_stream(a); });
}

TEST_F(WaitStream, DoesNotWaitForWorkEnqueuedAfterTheCall) {
  Stream a, b;
  Gate gate;
  EXPECT_RUNS(a);
  b.wait_stream(a);
  gate.close_on(a);
  EXPECT_RUNS(b);
  EXPECT_PENDING(a);
}

TEST_F(WaitStream, MakesNoEventPerCall) {
  Stream a, b;
  expect_no_growth(
      10'000,
      [&] {
        enqueue_nothing(b);
        a.wait_stream(b);
      },
      [&] { a.synchronize(); });
}

TEST_F(WaitStreamTwo, WaitsAcrossDevices) {
  Log log;
  Stream a{first}, b{second};
  Gate gate{a};
  log.write(a, "first device");
  b.wait_stream(a);
  log.write(b, "second device");
  a.wait_stream(b);
  log.write(a, "first device again");
  EXPECT_PENDING(b);
  gate.open_and_wait(a);
  EXPECT_LOG(log, "first device", "second device", "first device again");
}

TEST_F(WaitStream, WaitingForAnIdleStreamIsANoOp) {
  Stream idle, stream;
  stream.wait_stream(idle);
  EXPECT_RUNS(stream);
  stream.wait_stream(default_stream());
  EXPECT_RUNS(stream);
}

TEST_F(WaitStream, OneStreamWaitsForMany) {
  Log log;
  Streams sources(64);
  Stream join;
  Gate gate;
  for (const Stream& source : sources) {
    gate.close_on(source);
    log.write(source, "source");
    join.wait_stream(source);
  }
  log.write(join, "join");
  gate.open_and_wait(join);
  Entries expected(64, "source");
  expected.emplace_back("join");
  EXPECT_EQ(log.entries(), expected);
}

}  // namespace conformance::wait_stream_cases
