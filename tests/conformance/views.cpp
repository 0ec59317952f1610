// SPDX-License-Identifier: Apache-2.0
// Views of streams that other code owns.
#include <runnel/foreign_stream.hpp>

#include "support.hpp"

namespace conformance::views_cases {
using Views = Conformance;
using ViewsTwo = TwoDevices;

native::stream numbered(uintptr_t number) { return reinterpret_cast<native::stream>(number); }

TEST_F(Views, DefaultHandlesMeanDefaultStreams) {
  EXPECT_EQ(StreamRef::from_native(numbered(0), device()), default_stream());
  EXPECT_EQ(StreamRef::from_native(nullptr, device()), default_stream());
  EXPECT_EQ(StreamRef::from_native(numbered(1), device()), default_stream());
  EXPECT_EQ(StreamRef::from_native(numbered(2), device()), thread_default());
  EXPECT_EQ(StreamRef::from_native(default_stream().native()), default_stream());
  const StreamRef own = thread_default();
  EXPECT_EQ(StreamRef::from_native(own.native()), own);
  for (const uintptr_t number : {0U, 1U, 2U}) {
    EXPECT_RUNS(StreamRef::from_native(numbered(number), device()));
    EXPECT_ERROR(invalid_argument, borrow(numbered(number)));
    EXPECT_ERROR(invalid_argument, take(numbered(number)));
  }
}

TEST_F(Views, AThreadsHandleMeansTheThreadThatAsks) {
  const StreamRef own = StreamRef::from_native(numbered(2), device());
  on_thread([&] { EXPECT_NE(StreamRef::from_native(numbered(2), Device{0}), own); });
}

TEST_F(ViewsTwo, DefaultHandlesAreOfTheNamedDevice) {
  EXPECT_EQ(StreamRef::from_native(numbered(0), second), second.default_stream());
  EXPECT_EQ(StreamRef::from_native(numbered(2), second), StreamRef::per_thread_default(second));
  const DeviceGuard with{second};
  EXPECT_EQ(StreamRef::from_native(numbered(1)), second.default_stream());
}

TEST_F(ViewsTwo, AnotherDevicesHandleIsRefused) {
  const Stream owner{second};
  EXPECT_ERROR(invalid_argument, StreamRef::from_native(owner.native(), first));
  EXPECT_ERROR(invalid_argument, Stream::from_native(owner.native(), first, Ownership::borrow));
}

TEST_F(Views, AViewOfAStreamIsThatStreamAndEndsWithIt) {
  std::optional owner{Stream{}};
  const StreamRef view = StreamRef::from_native(owner->native(), device());
  EXPECT_EQ(view, *owner);
  EXPECT_RUNS(view);
  owner.reset();
  EXPECT_FALSE(view.is_valid());
}

TEST_F(Views, AViewOfAForeignHandleNeedsNoStreamObject) {
  const Foreign foreign;
  const auto before = live_objects().streams;
  const StreamRef view = StreamRef::from_native(foreign.handle, device());
  EXPECT_EQ(live_objects().streams, before);
  EXPECT_EQ(view, StreamRef::from_native(foreign.handle, device()));
  EXPECT_EQ(view.native(), foreign.handle);
  EXPECT_RUNS(view);
  // ends at once
  drop(foreign.wrap());
  EXPECT_TRUE(view.is_valid());
  DeviceInts memory{100, view};
  fill(view, memory, 3);
  EXPECT_EQ(get(view, memory, 99), 3);
}

TEST_F(Views, WrappersAndViewsAreOneStream) {
  const Foreign foreign;
  const Stream wrapper = foreign.wrap();
  const StreamRef view = StreamRef::from_native(foreign.handle, device());
  EXPECT_EQ(view, wrapper);
  wrapper.launch_host_func([] { throw 7; });
  EXPECT_THROW(view.synchronize(), int);
  wrapper.synchronize();
}

TEST_F(Views, ManyViewsAndWrappersLeakNothing) {
  expect_no_growth(20'000, [] {
    const Foreign foreign;  // of a handle that the runtime may give to a Stream next
    drop(StreamRef::from_native(foreign.handle, Device::current()));
    drop(foreign.wrap());
    const Stream stream;
    drop(StreamRef::from_native(stream.native(), Device::current()));
  });
}

TEST_F(Views, AViewOfAHandleThatIsAnotherStreamsNowHasEnded) {
  // Other code destroys its stream, and the runtime may give the handle to a new Stream.
  auto foreign = std::make_unique<Foreign>();
  const native::stream handle = foreign->handle;
  const StreamRef view = StreamRef::from_native(handle, device());
  const Stream unrelated;
  EXPECT_NE(view, unrelated);
  foreign.reset();
  Streams streams(20);
  for (const Stream& stream : streams) EXPECT_NE(stream, view);
  EXPECT_FALSE(view.is_valid());
}

TEST_F(Views, AForeignStreamKeepsItsOwner) {
  auto owner = std::make_shared<Foreign>();
  const std::weak_ptr<Foreign> watched = owner;
  // g++ 12 warns of an std::optional of it
  auto stream = std::make_unique<ForeignStream>(owner->handle, device(), owner);
  owner.reset();
  {
    const ForeignStream copied = *stream;
    EXPECT_EQ(copied, *stream);
    EXPECT_EQ(copied.owner(), stream->owner());
    EXPECT_RUNS(copied);
    stream.reset();
    EXPECT_FALSE(watched.expired());
    EXPECT_TRUE(copied.is_valid());
    EXPECT_RUNS(copied);
    const StreamRef view = copied;
    EXPECT_TRUE(view.is_valid());
  }
  EXPECT_TRUE(watched.expired());
}

TEST_F(Views, AForeignStreamThatWasMovedFromKeepsItsOwner) {
  const auto owner = std::make_shared<Foreign>();
  ForeignStream stream{owner->handle, device(), owner};
  const ForeignStream moved{std::move(stream)};
  EXPECT_EQ(stream.owner(), owner);
  EXPECT_EQ(moved.owner(), owner);
  EXPECT_RUNS(stream);
}

TEST_F(Views, AForeignStreamMayBeADefaultStream) {
  auto owner = std::make_shared<int>(1);
  for (const uintptr_t number : {0U, 2U}) {
    const ForeignStream stream{numbered(number), device(), owner};
    EXPECT_EQ(owner.use_count(), 2);
    EXPECT_RUNS(stream);
  }
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_TRUE(default_stream().is_valid());
}

}  // namespace conformance::views_cases
