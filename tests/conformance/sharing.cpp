// SPDX-License-Identifier: Apache-2.0
// Memory and events that other processes can open, within one process. exit_fork.cpp has the cases
// of two processes.
#include <runnel/graph.hpp>

#include "support.hpp"

namespace conformance::sharing_cases {
using Sharing = Conformance;
using SharingTwo = TwoDevices;

constexpr EventOptions interprocess{.interprocess = true};

TEST_F(Sharing, ASharedBufferIsDeviceMemory) {
  const LiveObjects before = live_objects();
  {
    Stream stream;
    SharedBuffer<int> memory{1000};
    EXPECT_EQ(memory.device(), device());
    EXPECT_FALSE(memory.is_opened());
    EXPECT_KIND(memory.data(), device);
    EXPECT_EQ(live_objects().device_blocks, before.device_blocks + 1);
    const Ints in(1000, 4);
    copy(stream, memory, in);
    EXPECT_EQ(read_back(stream, memory), in);
    SharedBuffer<int> moved{std::move(memory)};
    EXPECT_TRUE(memory.empty());
    EXPECT_EQ(moved.ipc_handle(), moved.ipc_handle());
    EXPECT_ERROR(invalid_argument, memory.ipc_handle());
  }
  EXPECT_EQ(live_objects().device_blocks, before.device_blocks);
}

TEST_F(Sharing, EmptyAndImpossibleSizes) {
  const SharedBuffer<int> none{0}, empty;
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_ERROR(invalid_argument, none.ipc_handle());
  EXPECT_ERROR(out_of_memory, SharedBuffer<char>{huge});
  EXPECT_ERROR(out_of_memory, SharedBuffer<int>{huge});
  EXPECT_ERROR(out_of_memory, SharedBuffer<int>{gib * gib});
  EXPECT_ERROR(invalid_device, SharedBuffer<int>{4, Device{99}});
}

TEST_F(Sharing, ADestructorWaitsForTheWork) {
  Stream stream;
  Ints out(1000);
  auto memory = std::make_unique<SharedBuffer<int>>(1000U);
  Gate gate{stream};
  fill(stream, *memory, 7);
  copy(stream, out, *memory);
  EXPECT_HELD(gate, memory.reset());
  stream.synchronize();
  EXPECT_EQ(out, Ints(1000, 7));
}

TEST_F(Sharing, ABufferMayBeDroppedInAHostFunction) {
  Stream stream;
  auto memory = std::make_shared<SharedBuffer<int>>(1000U);
  enqueue_drop(stream, memory);
  memory.reset();
  stream.synchronize();
  const Stream next;  // a call that destroys what was postponed
  next.synchronize();
  EXPECT_EVENTUALLY(runs(next) && live_objects().device_blocks == 0);
}

TEST_F(Sharing, ABufferThatACompletionDropsHoldsNoOtherCompletion) {
  const Stream stream, busy;
  SharedBuffer<int> buffer{100};
  Gate gate{busy};
  keep(stream, std::move(buffer));
  std::promise<void> next;
  stream.on_complete([&](const Outcome&) { next.set_value(); });
  EXPECT_EQ(next.get_future().wait_for(patience), std::future_status::ready);
}

TEST_F(Sharing, OnlyAnInterprocessEventIsShared) {
  Event plain;
  EXPECT_ERROR(invalid_argument, plain.ipc_handle());
  Event moved{std::move(plain)};
  EXPECT_ERROR(invalid_handle, plain.ipc_handle());
}

TEST_F(Sharing, AssigningAnEventAssignsWhetherItIsShared) {
  Stream stream;
  Event event, shared{interprocess};
  event.record(stream);
  event = std::move(shared);
  const IpcEventHandle handle = event.ipc_handle();
  event.record(stream);
  EXPECT_EQ(event.ipc_handle(), handle);
  event.synchronize();
  event = Event{};
  event.record(stream);
  EXPECT_ERROR(invalid_argument, event.ipc_handle());
}

TEST_F(Sharing, ASharedEventWorksInItsOwnProcess) {
  Stream stream, waiter;
  Event event{interprocess};
  const IpcEventHandle handle = event.ipc_handle();
  EXPECT_EQ(event.ipc_handle(), handle);
  EXPECT_DONE(event);
  Log log;
  Gate gate{stream};
  log.write(stream, "first");
  event.record(stream);
  waiter.wait_event(event);
  log.write(waiter, "second");
  EXPECT_PENDING(event);
  EXPECT_PENDING(waiter);
  EXPECT_HELD(gate, event.synchronize());
  waiter.synchronize();
  EXPECT_LOG(log, "first", "second");
  for (int i : range(2000)) event.record(i % 2 == 0 ? stream : waiter);
  EXPECT_COMPLETES(event);
}

// The other record may be that of a process that has ended.
TEST_F(Sharing, NoRecordOfASharedEventWaitsForAnother) {
  SKIP_IF(!streams_are_threads(),
          "the runtime may make a record wait for the event's earlier ones");
  Stream stream, other;
  Event event{interprocess};
  drop(event.ipc_handle());
  Gate gate{other};
  event.record(other);
  EXPECT_PENDING(event);
  repeat(2000, [&] { event.record(stream); });
  EXPECT_COMPLETES(stream);
  EXPECT_DONE(event);
  EXPECT_CLOSED(gate);
}

TEST_F(Sharing, ASharedEventIsRecordedAgainAfterAWaitThatGaveUp) {
  const Stream stream;
  Event event{interprocess};
  const IpcEventHandle handle = event.ipc_handle();
  Gate gate{stream};
  event.record(stream);
  EXPECT_FALSE(event.synchronize_for(1ms));
  event.record(stream);
  EXPECT_EQ(event.ipc_handle(), handle);
  gate.open();
  EXPECT_COMPLETES(event);
}

TEST_F(Sharing, ASharedEventIsNotReused) {
  Stream stream;
  const LiveObjects before = live_objects();
  {
    Event event{interprocess};
    drop(event.ipc_handle());
    const Event moved{std::move(event)};
    EXPECT_EQ(live_objects().events, before.events + 1);
  }
  EXPECT_EQ(live_objects(), before);
}

TEST_F(SharingTwo, ASharedEventStaysOnItsDevice) {
  Stream here{first}, there{second};
  Event event{interprocess};
  drop(event.ipc_handle());
  EXPECT_EQ(event.device(), first);
  EXPECT_ERROR(invalid_argument, event.record(there));
  event.record(here);
  there.wait_event(event);
  there.synchronize();
  EXPECT_EQ(event.device(), first);
  EXPECT_CURRENT_DEVICE(first);
}

TEST_F(SharingTwo, AStreamOfAnotherDeviceWaitsForASharedEvent) {
  LiveObjects before{};
  // The library keeps the mark behind the last wait for something outside, so the first rounds make
  // events for it.
  repeat(4, [&] {
    before = live_objects();
    Stream here{first}, there{second};
    Event event{interprocess};
    Log log;
    Gate gate, next;
    gate.close_on(here);
    log.write(here, "first");
    event.record(here);
    there.wait_event(event);  // before other processes know the event
    drop(event.ipc_handle());
    there.wait_event(event);
    next.close_on(here);
    event.record(here);  // a wait is for the record that was the last one at the call
    log.write(there, "second");
    EXPECT_BEHIND(gate, there);
    EXPECT_LOG(log, "first", "second");
    next.open();
    here.synchronize();
    EXPECT_CURRENT_DEVICE(first);
  });
  EXPECT_EQ(live_objects(), before);
}

TEST_F(SharingTwo, TheDefaultStreamsOfAnotherDeviceWaitForASharedEvent) {
  Stream here{first};
  const Event event{here, interprocess};
  for (const StreamRef waiter : {second.default_stream(), StreamRef::per_thread_default(second)}) {
    waiter.wait_event(event);
    EXPECT_COMPLETES(waiter);
  }
  EXPECT_CURRENT_DEVICE(first);
}

TEST_F(SharingTwo, ACapturedStreamRefusesASharedEventAndGoesOn) {
  Stream here{first}, there{second};
  const Event event{here, interprocess};
  EXPECT_ERROR(capture, capture(there, [&] { there.wait_event(event); }));
  EXPECT_RUNS(there);
  EXPECT_RUNS(here);
}

TEST_F(SharingTwo, WaitsGoOnWhileASharedEventMovesAndIsShared) {
  Stream here{first}, there{second};
  repeat(20, [&] {
    Event event{here, interprocess};
    on_threads(3, [&](int thread) {
      for (int i : range(20)) {
        if (thread == 0)
          there.wait_event(event);
        else if (thread == 1)
          here.wait_event(event);
        else if (i < 10)
          event.record(i % 2 == 0 ? there : here);
        else
          drop(event.ipc_handle());
      }
    });
  });
  here.synchronize();
  there.synchronize();
}

TEST_F(SharingTwo, MemoryIsOnTheNamedDevice) {
  const SharedBuffer<int> memory{10, second};
  EXPECT_EQ(memory.device(), second);
  EXPECT_EQ(pointer_info(memory.data()).device, second);
  EXPECT_CURRENT_DEVICE(first);
}

}  // namespace conformance::sharing_cases
