// SPDX-License-Identifier: Apache-2.0
// Objects that are moved, moved from, or destroyed.

#include "support.hpp"

namespace conformance::moves_cases {
using Moves = Conformance;

// Sizes, and which types can be copied and moved.
static_assert(std::is_trivially_copyable_v<StreamRef> && sizeof(StreamRef) <= 2 * sizeof(void*));
static_assert(std::is_nothrow_move_constructible_v<Stream> &&
              std::is_nothrow_move_assignable_v<Stream>);
static_assert(!std::is_copy_constructible_v<Stream> && !std::is_copy_assignable_v<Stream>);
static_assert(sizeof(Stream) <= 3 * sizeof(void*));
static_assert(std::is_nothrow_move_constructible_v<Event> &&
              std::is_nothrow_move_assignable_v<Event>);
static_assert(std::is_nothrow_move_constructible_v<TimedEvent> &&
              std::is_nothrow_move_assignable_v<TimedEvent>);
static_assert(!std::is_copy_constructible_v<Event> && !std::is_copy_constructible_v<TimedEvent>);
static_assert(std::is_nothrow_move_constructible_v<StreamLease> &&
              std::is_nothrow_move_assignable_v<StreamLease>);
static_assert(std::is_nothrow_move_constructible_v<StreamPool> &&
              std::is_nothrow_move_assignable_v<StreamPool>);
static_assert(std::is_nothrow_move_constructible_v<DeviceInts> &&
              std::is_nothrow_move_constructible_v<PinnedInts>);
static_assert(std::is_nothrow_destructible_v<Stream> && std::is_nothrow_destructible_v<Event>);
static_assert(sizeof(Device) == sizeof(int));

TEST_F(Moves, MovingKeepsHandleIdAndWork) {
  Log log;
  Stream stream;
  const auto handle = stream.native();
  const auto id = stream.id();
  const StreamRef view = stream;
  Gate gate{stream};
  log.write(stream, "before");
  Stream constructed{std::move(stream)};
  EXPECT_EQ(constructed.native(), handle);
  EXPECT_EQ(constructed.id(), id);
  Stream assigned;
  assigned = std::move(constructed);
  EXPECT_EQ(assigned.native(), handle);
  EXPECT_EQ(assigned, view);
  EXPECT_TRUE(view.is_valid());
  log.write(view, "after");
  gate.open_and_wait(assigned);
  EXPECT_LOG(log, "before", "after");
}

TEST_F(Moves, MovedFromObjectsAreInvalid) {
  Stream stream;
  const Stream moved{std::move(stream)};
  EXPECT_FALSE(stream.is_valid());  // NOLINT: this file tests moved-from objects
  EXPECT_EQ(stream.id(), 0U);
  EXPECT_NE(stream, moved);
  EXPECT_NE(stream, default_stream());
  EXPECT_FALSE(to_string(stream).empty());

  Event event{moved};
  const Event moved_event{std::move(event)};
  EXPECT_FALSE(event.is_valid());
  EXPECT_TRUE(moved_event.is_valid());
}

/// Expects that every member and function that needs a live stream refuses `dead`.
void expect_all_throw(StreamRef dead, StreamRef alive) {
  Event event;
  TimedEvent timed;
  Ints a(4), b(4);
  DeviceInts there{4, alive};
  const Stream other;
  there.record_stream(other);
  PinnedInts pinned{4};
  EXPECT_ERROR(invalid_handle, dead.native());
  EXPECT_ERROR(invalid_handle, dead.device());
  EXPECT_ERROR(invalid_handle, dead.priority());
  EXPECT_ERROR(invalid_handle, dead.is_blocking());
  EXPECT_ERROR(invalid_handle, dead.name());
  EXPECT_ERROR(invalid_handle, dead.query());
  EXPECT_ERROR(invalid_handle, dead.synchronize());
  EXPECT_ERROR(invalid_handle, dead.synchronize_for(patience));
  EXPECT_ERROR(invalid_handle, dead.wait_event(event));
  EXPECT_ERROR(invalid_handle, dead.wait_event(timed));
  EXPECT_ERROR(invalid_handle, dead.wait_stream(alive));
  EXPECT_ERROR(invalid_handle, dead.wait_stream(dead));
  EXPECT_ERROR(invalid_handle, alive.wait_stream(dead));
  EXPECT_ERROR(invalid_handle, dead.record_event());
  EXPECT_ERROR(invalid_handle, dead.record_event(event));
  EXPECT_ERROR(invalid_handle, dead.record_event(timed));
  EXPECT_ERROR(invalid_handle, dead.launch_host_func([] {}));
  EXPECT_ERROR(invalid_handle, dead.use());
  EXPECT_ERROR(invalid_handle, Event{dead});
  EXPECT_ERROR(invalid_handle, StreamGuard{dead});
  EXPECT_ERROR(invalid_handle, DeviceInts{4, dead});
  EXPECT_ERROR(invalid_handle, copy(dead, a, b));
  EXPECT_ERROR(invalid_handle, copy_bytes(dead, a.data(), b.data(), 4));
  EXPECT_ERROR(invalid_handle, copy_2d(dead, a.data(), 8, b.data(), 8, 4, 2));
  EXPECT_ERROR(invalid_handle, copy(dead, there, a));
  EXPECT_ERROR(invalid_handle, copy_batch(dead, std::array{copy_operation(a, there)}));
  EXPECT_ERROR(invalid_handle, fill(dead, a, 1));
  EXPECT_ERROR(invalid_handle, fill(dead, there, 1));
  EXPECT_ERROR(invalid_handle, set(dead, there, 0, 1));
  EXPECT_ERROR(invalid_handle, get(dead, there, 0));
  EXPECT_ERROR(invalid_handle, fill_bytes(dead, a.data(), 1, 4));
  EXPECT_ERROR(invalid_handle, fill_2d(dead, a.data(), 8, 1, 4, 2));
  EXPECT_ERROR(invalid_handle, dead.on_complete([](const Outcome&) {}));
  EXPECT_ERROR(invalid_handle, dead.future());
  EXPECT_ERROR(invalid_handle, there.record_stream(dead));
  EXPECT_ERROR(invalid_handle, there.set_stream(dead));
  EXPECT_ERROR(invalid_handle, dead.wait_for_uses(there));
  EXPECT_ERROR(invalid_handle, DeviceInts(there, dead).data());
  EXPECT_ERROR(invalid_handle, record_stream(dead, there));
  EXPECT_ERROR(invalid_handle, pinned.record_stream(dead));
  EXPECT_DONE(event);
  EXPECT_EQ(event.native(), nullptr) << "a refused record made a native event";
}

TEST_F(Moves, EveryMemberOfAMovedFromStreamThrows) {
  Stream stream;
  Stream moved{std::move(stream)};
  expect_all_throw(stream, moved);
  EXPECT_ERROR(invalid_handle, stream.release());
  EXPECT_RUNS(moved);
}

TEST_F(Moves, AStaleViewThrowsEvenWhenItsSlotIsReused) {
  std::optional stream{Stream{}};
  const StreamRef stale = *stream;
  stream.reset();
  const Streams others(64);  // one of them reuses the slot of the destroyed stream
  EXPECT_FALSE(stale.is_valid());
  for (const Stream& other : others) EXPECT_NE(stale, other);
  expect_all_throw(stale, others.front());
  EXPECT_RUNS(others.back());
}

template <class E>
void expect_all_members_throw(E& event, StreamRef stream) {
  EXPECT_FALSE(event.is_valid());
  EXPECT_ERROR(invalid_handle, event.record(stream));
  EXPECT_ERROR(invalid_handle, stream.record_event(event));
  EXPECT_ERROR(invalid_handle, stream.wait_event(event));
  EXPECT_ERROR(invalid_handle, event.query());
  EXPECT_ERROR(invalid_handle, event.synchronize());
  EXPECT_ERROR(invalid_handle, event.synchronize_for(patience));
  EXPECT_ERROR(invalid_handle, event.native());
  EXPECT_ERROR(invalid_handle, event.device());
  EXPECT_ERROR(invalid_handle, event.release());
}

TEST_F(Moves, EveryMemberOfAMovedFromEventThrows) {
  Stream stream;
  Event event{stream};
  TimedEvent timed{stream};
  const Event moved_event{std::move(event)};
  const TimedEvent moved_timed{std::move(timed)};
  expect_all_members_throw(event, stream);
  expect_all_members_throw(timed, stream);
  moved_timed.synchronize();
  EXPECT_ERROR(invalid_handle, timed - moved_timed);
  EXPECT_ERROR(invalid_handle, moved_timed - timed);
}

TEST_F(Moves, AMovedFromObjectCanBeAssignedTo) {
  Stream stream;
  Stream moved{std::move(stream)};
  stream = Stream{};
  EXPECT_RUNS(stream);
  Event event{stream};
  Event moved_event{std::move(event)};
  event = Event{stream};
  EXPECT_COMPLETES(event);
}

TEST_F(Moves, SelfMoveLeavesAnObjectUsable) {
  Stream stream;
  Stream& same = stream;
  const auto id = stream.id();
  stream = std::move(same);
  EXPECT_EQ(stream.id(), id);
  EXPECT_RUNS(stream);
  Event event{stream};
  Event& same_event = event;
  event = std::move(same_event);
  EXPECT_TRUE(event.is_valid());
  event.synchronize();
  DeviceInts buffer{4, stream};
  DeviceInts& same_buffer = buffer;
  const int* data = buffer.data();
  buffer = std::move(same_buffer);
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(buffer.size(), 4U);
}

TEST_F(Moves, AssigningOverALiveStreamDestroysItOnce) {
  Log log;
  const auto before = live_objects().streams;
  {
    Stream a, b;
    const StreamRef old = a;
    Gate gate{a};
    log.write(a, "of the old one");
    EXPECT_EQ(live_objects().streams, before + 2);
    a = std::move(b);
    EXPECT_EQ(live_objects().streams, before + 1);
    EXPECT_FALSE(old.is_valid());
    EXPECT_RUNS(a);
  }
  EXPECT_EQ(live_objects().streams, before);
  EXPECT_EVENTUALLY(log.has("of the old one"));
}

TEST_F(Moves, AssigningOverALiveEventDestroysItOnce) {
  Stream stream;
  const auto before = live_objects().events;
  {
    Event a{stream}, b{stream};
    a = std::move(b);
    a = Event{stream};
    a.synchronize();
  }
  EXPECT_EQ(live_objects().events, before);
}

TEST_F(Moves, AssigningToTheBaseViewStillDestroysTheOwnStream) {
  const auto before = live_objects().streams;
  Stream other;
  {
    Stream stream;
    static_cast<StreamRef&>(stream) = other;
  }
  EXPECT_EQ(live_objects().streams, before + 1);
  EXPECT_RUNS(other);
}

TEST_F(Moves, AStreamMovesToAnotherThread) {
  Log log;
  Stream stream;
  std::thread thread{[&log, moved = std::move(stream)]() mutable {
    log.write(moved, "there");
    moved.synchronize();
    const Stream dies_here{std::move(moved)};
  }};
  thread.join();
  EXPECT_EQ(log.size(), 1U);
}

TEST_F(Moves, AnEventMovesWhileAStreamWaits) {
  Stream held, waiter;
  Event elsewhere;
  expect_waits(held, waiter, [&] {
    Event event{held};
    waiter.wait_event(event);
    Event moved{std::move(event)};
    EXPECT_PENDING(moved);
    elsewhere = std::move(moved);
    EXPECT_PENDING(elsewhere);
  });
  elsewhere.synchronize();
  EXPECT_DONE(elsewhere);
}

}  // namespace conformance::moves_cases
