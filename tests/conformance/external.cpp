// SPDX-License-Identifier: Apache-2.0
// Wrappers of native handles that other code made.
#include "../support/foreign_capture.hpp"
#include "support.hpp"

namespace conformance::external_cases {
using External = Conformance;
using ExternalTwo = TwoDevices;

// Arguments that could be mistaken for the null stream do not compile.
static_assert(!std::is_constructible_v<StreamRef, std::nullptr_t>);
static_assert(!std::is_constructible_v<StreamRef, int>);
static_assert(!std::is_constructible_v<Stream, std::nullptr_t>);
static_assert(!std::is_constructible_v<Stream, int>);
static_assert(!std::is_constructible_v<StreamRef, native::stream>);
template <class T>
concept wrappable =
    requires(T handle) { Stream::from_native(handle, Device{0}, Ownership::borrow); };
static_assert(wrappable<native::stream> && !wrappable<std::nullptr_t> && !wrappable<int>);

TEST_F(External, ABorrowedHandleStaysValid) {
  Log log;
  Stream owner;
  Gate gate;
  {
    const Stream wrapper = borrow(owner);
    EXPECT_EQ(wrapper.native(), owner.native());
    EXPECT_EQ(wrapper.device(), device());
    EXPECT_EQ(wrapper.priority(), owner.priority());
    EXPECT_EQ(wrapper.is_blocking(), owner.is_blocking());
    gate.close_on(owner);
    log.write(wrapper, "through the wrapper");
  }
  log.write(owner, "through the owner");
  gate.open_and_wait(owner);
  EXPECT_LOG(log, "through the wrapper", "through the owner");
}

TEST_F(External, AReleasedHandleCanBeAdopted) {
  Log log;
  const auto before = live_objects().streams;
  {
    Stream stream{{.priority = Priority::high, .blocking = true}};
    const StreamRef view = stream;
    const auto priority = stream.priority();
    Gate gate{stream};
    const native::stream handle = stream.release();
    EXPECT_FALSE(stream.is_valid());
    EXPECT_FALSE(view.is_valid());
    EXPECT_EQ(live_objects().streams, before);
    const Stream adopted = take(handle);
    EXPECT_EQ(live_objects().streams, before + 1);
    EXPECT_EQ(adopted.native(), handle);
    EXPECT_EQ(adopted.priority(), priority);
    EXPECT_TRUE(adopted.is_blocking());
    EXPECT_PENDING(adopted);
    log.write(adopted, "adopted");
    gate.open_and_wait(adopted);
  }
  EXPECT_EQ(log.size(), 1U);
  EXPECT_EQ(live_objects().streams, before);
}

TEST_F(External, TheDeviceOfAHandleIsFound) {
  for (const Device each : all_devices()) {
    Stream owner{each};
    std::optional<Stream> wrapper;
    const auto code =
        code_of([&] { wrapper = Stream::from_native(owner.native(), Ownership::borrow); });
    SKIP_IF(code == errc::not_supported, "the runtime cannot tell the device of a handle");
    EXPECT_EQ(code, nothing_thrown);
    EXPECT_EQ(wrapper->device(), each);
  }
}

void launch_failure(StreamRef stream, const char* text) {
  stream.launch_host_func([text] { throw std::runtime_error{text}; });
}

/// The text of the exception that synchronize() rethrows from a host function; "" if it rethrows
/// none.
std::string failure_of(StreamRef stream) {
  try {
    stream.synchronize();
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST_F(External, WrappersOfOneHandleAreTheSameStream) {
  const auto before = live_objects().streams;
  Stream owner{{.name = "owner"}};
  const Stream one = borrow(owner);
  const Stream two = borrow(owner);
  EXPECT_EQ(live_objects().streams, before + 3);
  for (const Stream* wrapper : {&one, &two}) {
    EXPECT_EQ(*wrapper, owner);
    EXPECT_EQ(wrapper->id(), owner.id());
    EXPECT_EQ(std::hash<Stream>{}(*wrapper), std::hash<Stream>{}(owner));
    EXPECT_STREQ(wrapper->name(), "owner");
  }
  const StreamGuard with{one};
  EXPECT_CURRENT(owner);
  EXPECT_NE(Stream{}, owner);
}

TEST_F(External, WrappersOfAForeignHandleAreTheSameStreamOnAllThreads) {
  const Foreign foreign;
  const Stream kept = foreign.wrap();
  std::atomic_int equal{0};
  on_threads(4, [&](int) { repeat(200, [&] { equal += foreign.wrap() == kept; }); });
  EXPECT_EQ(equal, 800);
  EXPECT_TRUE(kept.is_valid());
}

TEST_F(External, WaitingForAWrapperOfTheSameStreamIsANoOp) {
  Stream owner;
  const Stream wrapper = borrow(owner);
  Gate gate{owner};
  owner.wait_stream(wrapper);
  wrapper.wait_stream(owner);
  EXPECT_PENDING(wrapper);
}

TEST_F(External, AnExceptionReachesTheFirstWaitThroughAnyWrapper) {
  Stream owner;
  const Stream wrapper = borrow(owner);
  launch_failure(wrapper, "through the wrapper");
  EXPECT_EQ(failure_of(owner), "through the wrapper");
  EXPECT_EQ(failure_of(wrapper), "");
  launch_failure(owner, "through the owner");
  EXPECT_EQ(failure_of(wrapper), "through the owner");
  EXPECT_EQ(failure_of(owner), "");
}

TEST_F(External, AnExceptionOutlivesATemporaryWrapperOfAnOwnedHandle) {
  Stream owner;
  launch_failure(borrow(owner), "through a temporary");
  EXPECT_EQ(failure_of(owner), "through a temporary");
}

TEST_F(External, AnExceptionReachesTheWrappersThatAreLeft) {
  const Foreign foreign;
  const Stream last = foreign.wrap();
  launch_failure(foreign.wrap(), "through a temporary");
  EXPECT_EQ(failure_of(last), "through a temporary");
  EXPECT_EQ(failure_of(last), "");
}

TEST_F(External, AnExceptionEndsWithTheLastWrapper) {
  const Foreign foreign;
  {
    const Stream wrapper = foreign.wrap();
    launch_failure(wrapper, "early");
    Event{wrapper}.synchronize();
  }
  EXPECT_EQ(failure_of(foreign.wrap()), "");
}

TEST_F(External, AnExceptionAfterTheLastWrapperIsNotTheNextOnes) {
  const Foreign foreign;
  for (const bool next_exists : {false, true}) {
    Gate gate;
    {
      const Stream wrapper = foreign.wrap();
      gate.close_on(wrapper);
      launch_failure(wrapper, "late");
    }
    std::optional<Stream> next;
    if (next_exists) next = foreign.wrap();
    gate.open();
    if (!next_exists) next = foreign.wrap();
    EXPECT_EQ(failure_of(*next), "");
  }
}

TEST_F(External, AnExceptionOutlivesAReleaseIfThereIsAnotherWrapper) {
  for (const bool has_wrapper : {false, true}) {
    Stream stream;
    std::optional<Stream> wrapper;
    if (has_wrapper) wrapper = borrow(stream);
    Gate gate{stream};
    launch_failure(stream, "before the release");
    const native::stream handle = stream.release();
    const Stream adopted = take(handle);
    if (has_wrapper) {
      EXPECT_EQ(adopted, *wrapper);
    }
    gate.open();
    EXPECT_EQ(failure_of(adopted), has_wrapper ? "before the release" : "");
    EXPECT_EQ(failure_of(adopted), "");
  }
}

TEST_F(External, ANewStreamNeverHasAnExceptionOfAnEarlierOne) {
  repeat(100, [&] {
    // The runtime may give the new stream the handle of the old one.
    {
      const Foreign foreign;
      launch_failure(foreign.wrap(), "of the earlier stream");
    }
    EXPECT_EQ(failure_of(Stream{}), "");
  });
}

TEST_F(External, DestroyingTheOwnerInvalidatesItsWrappers) {
  std::optional owner{Stream{}};
  Stream wrapper = borrow(owner->native());
  const StreamRef view = wrapper;
  owner.reset();
  EXPECT_FALSE(wrapper.is_valid());
  EXPECT_ERROR(invalid_handle, wrapper.synchronize());
  EXPECT_ERROR(invalid_handle, wrapper.release());
  {
    // A new stream may get the same handle, but the old wrapper and the old views stay invalid.
    const Streams streams(40);
    for (const Stream& stream : streams) EXPECT_NE(stream, wrapper);
    EXPECT_FALSE(wrapper.is_valid());
    EXPECT_FALSE(view.is_valid());
  }
  Stream next;
  wrapper = borrow(next);
  EXPECT_EQ(wrapper, next);
  EXPECT_FALSE(view.is_valid());
}

TEST_F(External, ASecondOwnerIsRefused) {
  Stream owner;
  EXPECT_ERROR(invalid_argument, take(owner.native()));
  const Stream wrapper = borrow(owner);
  EXPECT_ERROR(invalid_argument, Stream::from_native(wrapper.native(), Ownership::take));
  EXPECT_RUNS(owner);
  EXPECT_EQ(wrapper, owner);
}

TEST_F(External, ABorrowedHandleCanBeAdopted) {
  Foreign foreign;
  const Stream borrowed = foreign.wrap();
  {
    const Stream owner = take(std::exchange(foreign.handle, {}));
    EXPECT_EQ(owner, borrowed);
    EXPECT_RUNS(borrowed);
  }
  EXPECT_FALSE(borrowed.is_valid());
}

TEST_F(External, DestroyingTheLastWrapperInvalidatesItsViews) {
  const Foreign foreign;
  auto one = std::make_unique<Stream>(foreign.wrap()),
       two = std::make_unique<Stream>(foreign.wrap());
  const StreamRef view = *one;
  one.reset();
  EXPECT_TRUE(view.is_valid());
  EXPECT_RUNS(view);
  two.reset();
  EXPECT_FALSE(view.is_valid());
  const Stream again = foreign.wrap();
  EXPECT_NE(again, view);
  EXPECT_FALSE(view.is_valid());
}

TEST_F(External, ReleasingAWrapperLeavesTheOwnerUnchanged) {
  Stream owner;
  Stream wrapper = borrow(owner);
  EXPECT_EQ(wrapper.release(), owner.native());
  EXPECT_FALSE(wrapper.is_valid());
  EXPECT_RUNS(owner);
  EXPECT_ERROR(invalid_argument, take(owner.native()));
}

TEST_F(External, ReleaseGivesTheOwnHandleAfterAnAssignmentToTheBase) {
  Stream stream;
  const Stream other;
  const native::stream handle = stream.native();
  static_cast<StreamRef&>(stream) = other;
  EXPECT_EQ(stream.release(), handle);
  EXPECT_RUNS(other);
  const Stream adopted = take(handle);
}

TEST_F(External, AnExceptionEndsWithAWrapperThatAHostFunctionEnds) {
  const Foreign foreign;
  Stream other;
  // A wrapper that is destroyed inside a host function is released later, on a thread outside.
  auto wrapper = std::make_shared<std::optional<Stream>>(foreign.wrap());
  launch_failure(**wrapper, "ended in a host function");
  other.launch_host_func([wrapper] { wrapper->reset(); });
  other.synchronize();
  EXPECT_EQ(failure_of(foreign.wrap()), "");
}

/// A recorded native event that no Event owns, as another library would make it.
native::event foreign_event(StreamRef stream) {
  Event event{stream};
  event.synchronize();
  return event.release();
}

// A runtime that is asked for a destroyed stream may crash.
TEST_F(External, MemoryGoesBackWithoutAQuestionToADestroyedStreamOfAView) {
  SKIP_IF(test_support::vendor_function("StreamDestroy") == nullptr,
          "only the library destroys streams");
  drop(PinnedBytes{mib});
  repeat(100, [&] {
    const native::stream handle = Stream{}.release();
    const StreamRef view = StreamRef::from_native(handle, device());
    view.launch_host_func([] {});  // It uses no memory, which would have to end before the stream.
    view.synchronize();
    EXPECT_EQ(test_support::vendor("StreamDestroy", handle), 0);
  });
  PinnedPool::trim();
  EXPECT_EVENTUALLY(PinnedPool::statistics().releasing == 0);
}

TEST_F(External, ATakenEventIsDestroyedAndNeverReused) {
  Stream stream;
  const native::event handle = foreign_event(stream);
  const LiveObjects before = live_objects();
  {
    Event taken = Event::from_native(handle, device(), Ownership::take);
    taken.record(stream);
    const Event moved = std::move(taken);
    EXPECT_EQ(live_objects().events, before.events + 1);
    moved.synchronize();
  }
  EXPECT_EQ(live_objects(), before);  // the pooled events included
}

TEST_F(External, ATakenEventThatIsAssignedToIsDestroyed) {
  Stream stream;
  const native::event handle = foreign_event(stream);
  drop(Event{stream});  // puts an event into the pool for the record below
  const LiveObjects before = live_objects();
  Event event = Event::from_native(handle, device(), Ownership::take);
  event = Event{};
  EXPECT_EQ(live_objects(), before);
  event.record(stream);
  event = Event{};
  EXPECT_EQ(live_objects(), before);  // the record's event was returned to the pool
}

TEST_F(ExternalTwo, ATakenEventThatIsRecordedOnAnotherDeviceIsDestroyed) {
  Stream here{first}, there{second};
  drop(Event{there});  // puts an event into the pool for the record below
  const native::event handle = foreign_event(here);
  const LiveObjects before = live_objects();
  {
    Event taken = Event::from_native(handle, first, Ownership::take);
    taken.record(there);
    EXPECT_NE(taken.native(), handle);
    taken.synchronize();
  }
  EXPECT_EQ(live_objects(), before);
}

TEST_F(External, EventHandlesCanBeBorrowedReleasedAndAdopted) {
  Stream stream, waiter;
  Event event;
  EXPECT_TRUE(code_of([&] { return event.release(); }));
  EXPECT_TRUE(event.is_valid());
  Gate gate{stream};
  event.record(stream);
  const native::event handle = event.native();
  ASSERT_NE(handle, nullptr);
  {
    Event borrowed = Event::from_native(handle, device(), Ownership::borrow);
    EXPECT_EQ(borrowed.native(), handle);
    EXPECT_EQ(borrowed.device(), device());
    EXPECT_PENDING(borrowed);
    waiter.wait_event(borrowed);
    EXPECT_PENDING(waiter);
  }
  EXPECT_PENDING(event);
  EXPECT_EQ(event.release(), handle);
  EXPECT_FALSE(event.is_valid());
  const Event adopted = Event::from_native(handle, device(), Ownership::take);
  EXPECT_BEHIND(gate, adopted);
  EXPECT_COMPLETES(waiter);
}

}  // namespace conformance::external_cases
