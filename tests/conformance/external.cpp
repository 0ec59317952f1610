// SPDX-License-Identifier: Apache-2.0
// Cases 190 to 196: handles made elsewhere.
#include "support.hpp"

namespace {
using namespace runnel;
using namespace conformance;
using External = Conformance;
using ExternalTwo = TwoDevices;

// Case 192: what could be taken for the null stream by mistake does not compile.
static_assert(!std::is_constructible_v<StreamRef, std::nullptr_t>);
static_assert(!std::is_constructible_v<StreamRef, int>);
static_assert(!std::is_constructible_v<Stream, std::nullptr_t>);
static_assert(!std::is_constructible_v<Stream, int>);
static_assert(!std::is_constructible_v<StreamRef, native::stream>);
template <class T>
concept wrappable = requires(T handle) {
  Stream::from_native(handle, Device{0}, Ownership::borrow);
};
static_assert(wrappable<native::stream> && !wrappable<std::nullptr_t> && !wrappable<int>);

TEST_F(External, C190_BorrowedTheHandleStaysValid) {
  Log log;
  Stream owner;
  Gate gate;
  {
    const Stream wrapper = Stream::from_native(owner.native(), device(), Ownership::borrow);
    EXPECT_EQ(wrapper.native(), owner.native());
    EXPECT_EQ(wrapper.device(), device());
    EXPECT_EQ(wrapper.priority(), owner.priority());
    EXPECT_EQ(wrapper.blocking(), owner.blocking());
    gate.close_on(owner);
    log.write(wrapper, "through the wrapper");
  }
  log.write(owner, "through the owner");
  gate.open();
  owner.synchronize();
  EXPECT_EQ(log.entries(), (Entries{"through the wrapper", "through the owner"}));
}

TEST_F(External, C191_ReleasedAndAdopted) {
  Log log;
  const auto before = live_objects().streams;
  {
    Stream stream{StreamOptions{.priority = Priority::high, .blocking = true}};
    const StreamRef view = stream;
    const auto priority = stream.priority();
    Gate gate;
    gate.close_on(stream);
    const native::stream handle = stream.release();
    EXPECT_FALSE(stream.valid());
    EXPECT_FALSE(view.valid());
    EXPECT_EQ(live_objects().streams, before);
    const Stream adopted = Stream::from_native(handle, device(), Ownership::take);
    EXPECT_EQ(live_objects().streams, before + 1);
    EXPECT_EQ(adopted.native(), handle);
    EXPECT_EQ(adopted.priority(), priority);
    EXPECT_TRUE(adopted.blocking());
    EXPECT_FALSE(adopted.query());
    log.write(adopted, "adopted");
    gate.open();
    adopted.synchronize();
  }
  EXPECT_EQ(log.size(), 1U);
  EXPECT_EQ(live_objects().streams, before);
}

TEST_F(External, C192_ANullHandleIsRefused) {
  EXPECT_EQ(code_of([&] { return Stream::from_native(native::stream{}, device(), Ownership::borrow); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { return Stream::from_native(native::stream{}, device(), Ownership::take); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { return Stream::from_native(native::stream{}, Ownership::borrow); }), errc::invalid_argument);
}

TEST_F(External, C193_TheDeviceIsFound) {
  for (int i = 0; i < Device::count(); ++i) {
    Stream owner{Device{i}};
    std::optional<Stream> wrapper;
    const auto code = code_of([&] { wrapper = Stream::from_native(owner.native(), Ownership::borrow); });
    if (code == errc::not_supported) GTEST_SKIP() << "the runtime does not tell";
    EXPECT_EQ(code, nothing_thrown);
    EXPECT_EQ(wrapper->device(), Device{i});
  }
}

TEST_F(ExternalTwo, C193_AnotherDevicesHandleIsRefused) {
  Stream owner{second};
  const auto code = code_of([&] { return Stream::from_native(owner.native(), first, Ownership::borrow); });
  EXPECT_EQ(code, errc::invalid_argument);
}

TEST_F(External, C195_EventHandlesBothWays) {
  Stream stream, waiter;
  Event event;
  EXPECT_TRUE(code_of([&] { return event.release(); }));
  EXPECT_TRUE(event.valid());
  Gate gate;
  gate.close_on(stream);
  event.record(stream);
  const native::event handle = event.native();
  ASSERT_NE(handle, nullptr);
  {
    Event borrowed = Event::from_native(handle, device(), Ownership::borrow);
    EXPECT_EQ(borrowed.native(), handle);
    EXPECT_EQ(borrowed.device(), device());
    EXPECT_FALSE(borrowed.query());
    waiter.wait_event(borrowed);
    EXPECT_FALSE(waiter.query());
  }
  EXPECT_FALSE(event.query());
  EXPECT_EQ(event.release(), handle);
  EXPECT_FALSE(event.valid());
  const Event adopted = Event::from_native(handle, device(), Ownership::take);
  EXPECT_FALSE(adopted.query());
  gate.open();
  adopted.synchronize();
  EXPECT_TRUE(waiter.synchronize_for(patience));
}

TEST_F(External, C195_ANullEventIsRefused) {
  EXPECT_EQ(code_of([&] { return Event::from_native(native::event{}, device(), Ownership::take); }), errc::invalid_argument);
}

TEST_F(External, C196_WorkThatOthersPutOnTheHandleIsSeen) {
  Stream owner;
  const Stream wrapper = Stream::from_native(owner.native(), device(), Ownership::borrow);
  Stream waiter;
  Gate gate;
  gate.close_on(owner);
  EXPECT_FALSE(wrapper.query());
  waiter.wait_stream(wrapper);
  EXPECT_FALSE(waiter.query());
  EXPECT_TRUE(held_by(gate, [&] { wrapper.synchronize(); }));
  waiter.synchronize();
}

}  // namespace
