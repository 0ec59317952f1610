// SPDX-License-Identifier: Apache-2.0
// The order of the default stream with destroyed streams, with ended threads, and with blocking
// streams that have no work of their own.
#include "support.hpp"

namespace conformance::default_stream_order_cases {
using DefaultStreamOrder = Conformance;

Stream make_blocking() { return Stream{{.blocking = true}}; }

/// Closes the gate on the per-thread default stream of a thread, writes "thread" behind the gate,
/// and ends the thread.
void leave_work_of_an_ended_thread(Gate& gate, const Log& log, Device device) {
  on_thread([&] {
    const StreamRef mine = StreamRef::per_thread_default(device);
    gate.close_on(mine);
    log.write(mine, "thread");
  });
}

/// Closes the gate on a blocking stream, writes "stream" behind the gate, and destroys the stream.
void leave_work_of_a_destroyed_stream(Gate& gate, const Log& log) {
  const Stream stream = make_blocking();
  gate.close_on(stream);
  log.write(stream, "stream");
}

TEST_F(DefaultStreamOrder, WorkOfDestroyedStreamsAndEndedThreadsIsAwaited) {
  const StreamRef null = default_stream();
  for (const bool by_thread : {true, false}) {
    Log log;
    Gate gate;
    by_thread ? leave_work_of_an_ended_thread(gate, log, device())
              : leave_work_of_a_destroyed_stream(gate, log);
    log.write(null, "default");
    EXPECT_BEHIND(gate, null);
    EXPECT_LOG(log, by_thread ? "thread" : "stream", "default");
  }
}

TEST_F(DefaultStreamOrder, TheDefaultStreamIsPendingBehindADestroyedOne) {
  const StreamRef null = default_stream();
  Log log;
  Gate gate;
  leave_work_of_a_destroyed_stream(gate, log);
  EXPECT_PENDING(null);
  EXPECT_HELD(gate, null.synchronize());
  EXPECT_LOG(log, "stream");
}

TEST_F(DefaultStreamOrder, ADestroyedIndependentStreamIsNotAwaited) {
  const StreamRef null = default_stream();
  Gate gate;
  {
    const Stream stream;
    gate.close_on(stream);
  }
  EXPECT_RUNS(null);
  EXPECT_DONE(null);
}

TEST_F(DefaultStreamOrder, TheDeviceWaitsForDestroyedStreamsAndEndedThreads) {
  Log log;
  Gate gate;
  leave_work_of_a_destroyed_stream(gate, log);
  EXPECT_HELD(gate, device().synchronize());
  EXPECT_LOG(log, "stream");
  Gate other;
  leave_work_of_an_ended_thread(other, log, device());
  EXPECT_HELD(other, device().synchronize());
  EXPECT_LOG(log, "stream", "thread");
}

TEST_F(DefaultStreamOrder, AnEventOnAnIdleStreamWaitsForTheDefaultStream) {
  const StreamRef null = default_stream();
  const Stream blocking = make_blocking();
  for (const StreamRef idle : {StreamRef{blocking}, thread_default()}) {
    Event event;
    Gate gate{null};
    idle.record_event(event);
    EXPECT_PENDING(event);
    EXPECT_HELD(gate, event.synchronize());
    null.synchronize();
  }
}

TEST_F(DefaultStreamOrder, WaitingForAnIdleBlockingStreamWaitsForTheDefaultStream) {
  const Stream blocking = make_blocking();
  const Stream waiting;
  expect_waits(default_stream(), waiting, [&] {
    waiting.wait_stream(blocking);
    EXPECT_FALSE(waiting.synchronize_for(20ms));
  });
}

TEST_F(DefaultStreamOrder, AnEventRecordedAgainWaitsForNewDefaultWork) {
  const StreamRef null = default_stream();
  const Stream blocking = make_blocking();
  Event event;
  for (int i : range(3)) {
    Gate gate{null};
    repeat(3, [&] { blocking.record_event(event); });
    EXPECT_PENDING(event) << i;
    gate.open_and_wait(event);
    null.synchronize();
  }
}

TEST_F(DefaultStreamOrder, AnIdleBlockingStreamIsFinishedWhileTheDefaultStreamRuns) {
  const StreamRef null = default_stream();
  const Stream blocking = make_blocking();
  Gate gate{null};
  ASSERT_TRUE(gate.reached());
  EXPECT_DONE(blocking);  // query() looks at the stream's own work only
  blocking.synchronize();
  gate.open_and_wait(null);
}

/// In each round a stream that is destroyed, or a thread that ends, writes a value. The default
/// stream copies it.
TEST_F(DefaultStreamOrder, SeesTheWorkOfManyDestroyedStreamsAndEndedThreads) {
  const StreamRef null = default_stream();
  PinnedInts value{1}, seen{200};
  for (int i : range(200)) {
    const auto enqueue_on = [&](StreamRef stream) {
      occupy(stream, std::chrono::milliseconds{i % 2});
      stream.launch_host_func([&value, i] { value[0] = i; });
    };
    if (i % 3 == 0)
      on_thread([&, here = device()] { enqueue_on(StreamRef::per_thread_default(here)); });
    else
      enqueue_on(make_blocking());
    copy_bytes(null, &nth(seen, i), value.data(), sizeof(int));
  }
  null.synchronize();
  for (int i : range(200)) ASSERT_EQ(nth(seen, i), i);
}

}  // namespace conformance::default_stream_order_cases
