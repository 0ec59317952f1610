// SPDX-License-Identifier: Apache-2.0
/// Tests of Point with streams of the host backend.

#include "slot/point.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/foreign_stream.hpp>
#include <runnel/statistics.hpp>

#include "../conformance/support.hpp"

namespace {

using namespace runnel;
using conformance::Gate;
using detail::InCapture;
using detail::key_of;
using detail::Point;
using detail::Progress;
using detail::Slot;
using detail::StreamKey;

Point point_of(StreamRef stream) { return Point{key_of(stream)}; }

/// Polls until the answer is another one than `pending`.
Progress answer_of(Point& point) {
  Progress progress = point.poll();
  for (; progress == Progress::pending; progress = point.poll()) std::this_thread::yield();
  return progress;
}

class Points : public testing::Test {
 protected:
  void SetUp() override { SKIP_IF(Device::count() == 0, "there is no device"); }
};

TEST_F(Points, ARecordedPointLeavesLaterWorkOut) {
  const Stream stream;
  Gate before, after;
  before.close_on(stream);
  Point point = point_of(stream);
  point.record();
  after.close_on(stream);
  EXPECT_EQ(point.poll(), Progress::pending);
  before.open();
  EXPECT_EQ(answer_of(point), Progress::complete);
  EXPECT_FALSE(after.is_open());
  after.open();
}

TEST_F(Points, AnOpenPointStandsForWorkThatCameLater) {
  const Stream stream;
  Point point = point_of(stream);
  Gate gate{stream};
  EXPECT_EQ(point.poll(), Progress::pending);
  gate.open();
  EXPECT_EQ(answer_of(point), Progress::complete);
}

TEST_F(Points, AStreamThatEndsLeavesItsLastEventInItsSlot) {
  std::optional<Stream> stream{std::in_place};
  Slot* const slot = key_of(*stream).slot;
  Gate gate{*stream};
  Point point = point_of(*stream);
  stream.reset();
  EXPECT_FALSE(point.is_over());
  EXPECT_EQ(point.poll(), Progress::pending);
  std::vector<Stream> others(40);  // more than a batch of slots
  for (const Stream& other : others) EXPECT_NE(key_of(other).slot, slot);
  gate.open();
  EXPECT_EQ(answer_of(point), Progress::complete);
  EXPECT_TRUE(point.is_over());
  bool has_come_back = false;
  for (int i = 0; i < 64; ++i) {
    others.emplace_back();
    has_come_back |= key_of(others.back()).slot == slot;
  }
  EXPECT_TRUE(has_come_back) << "the slot has not come back";
  EXPECT_EQ(point.poll(), Progress::complete)
      << "it is a point of the stream that has the slot now";
}

TEST_F(Points, AStreamWithoutPointsEndsWithoutAnEvent) {
  Gate gate;
  const Slot* slot = nullptr;
  std::uint64_t recorded = 0;
  {
    const Stream stream;
    gate.close_on(stream);
    slot = key_of(stream).slot;
    recorded = slot->timeline.recorded();
  }
  EXPECT_EQ(slot->timeline.recorded(), recorded);
  gate.open();
}

TEST_F(Points, APointOfAnEndedStreamIsEmpty) {
  std::optional<Stream> stream{std::in_place};
  const StreamKey use = key_of(*stream);
  stream.reset();
  EXPECT_FALSE(Point{use});
  const Stream next;
  ASSERT_EQ(key_of(next).slot, use.slot);
  EXPECT_FALSE(Point{use}) << "it is a point of the stream that has the slot now";
  EXPECT_FALSE(detail::HandleLock{use}) << "the handle of the stream that has the slot now";
}

TEST_F(Points, ABorrowedStreamsPointKeepsItsSlot) {
  const native::stream handle = Stream{}.release();
  std::optional<Stream> wrapper{conformance::borrow(handle)};
  Gate gate, later;
  gate.close_on(*wrapper);
  Point point = point_of(*wrapper);
  wrapper.reset();
  wrapper.emplace(conformance::take(handle));
  EXPECT_NE(key_of(*wrapper).slot, point.slot());
  later.close_on(*wrapper);
  EXPECT_EQ(point.poll(), Progress::pending);
  gate.open();
  EXPECT_EQ(answer_of(point), Progress::complete)
      << "the point is before the work of the next wrapper";
  later.open();
}

TEST_F(Points, ABorrowedStreamEndedInAHostFunctionStaysUnknown) {
  Stream owner;
  auto borrowed = std::make_shared<Stream>(conformance::borrow(owner.release()));
  const native::stream handle = borrowed->native();
  Point point = point_of(*borrowed);
  const Stream other;
  other.launch_host_func([last = std::move(borrowed)]() mutable { last.reset(); });
  other.synchronize();
  EXPECT_EQ(answer_of(point), Progress::unknown);
  EXPECT_FALSE(point.make_wait(other.native(), InCapture::never));
  EXPECT_EQ(backend::stream_destroy(handle), backend::ok);
}

/// Makes another stream wait for the point, and expects it to wait until the gate opens.
void expect_wait(const Point& point, Gate& gate) {
  const Stream waiting;
  ASSERT_TRUE(point.make_wait(waiting.native(), InCapture::never));
  EXPECT_FALSE(waiting.query());
  gate.open();
  waiting.synchronize();
}

TEST_F(Points, AnOpenPointMakesAStreamWait) {
  const Stream stream;
  const Point point = point_of(stream);
  Gate gate{stream};
  expect_wait(point, gate);
}

TEST_F(Points, ARecordedPointMakesAStreamWait) {
  const Stream stream;
  Point point = point_of(stream);
  Gate gate, later;
  gate.close_on(stream);
  point.record();
  later.close_on(stream);
  expect_wait(point, gate);
  later.open();
}

TEST_F(Points, APointOfAnEndingStreamMakesAStreamWait) {
  std::optional<Stream> stream{std::in_place};
  const Point point = point_of(*stream);
  Gate gate{*stream};
  stream.reset();
  expect_wait(point, gate);
  EXPECT_EQ(point.ask(), Progress::complete);
  EXPECT_TRUE(point.is_over());
  const Stream other;
  EXPECT_TRUE(point.make_wait(other.native(), InCapture::never));
}

TEST_F(Points, AnotherThreadsDefaultStreamIsRecordedThere) {
  Gate gate;
  std::latch is_made{1}, is_requested{1}, is_recorded{1};
  Point point;
  std::thread owner{[&] {
    const StreamRef own = StreamRef::per_thread_default(Device{0});
    gate.close_on(own);
    point = point_of(own);
    is_made.count_down();
    is_requested.wait();
    EXPECT_EQ(point.poll(), Progress::pending) << "its own thread records the mark";
    is_recorded.count_down();
    own.synchronize();
  }};
  is_made.wait();
  EXPECT_EQ(point.poll(), Progress::stalled);
  EXPECT_FALSE(point.make_wait(Stream{}.native(), InCapture::never));
  is_requested.count_down();
  is_recorded.wait();
  EXPECT_EQ(point.poll(), Progress::pending);
  gate.open();
  owner.join();
  EXPECT_EQ(answer_of(point), Progress::complete);
}

TEST_F(Points, ACapturedStreamsPointIsStalledUntilTheEnd) {
  const Stream stream;
  Point point = point_of(stream);
  begin_capture(stream);
  EXPECT_EQ(point.poll(), Progress::stalled);
  static_cast<void>(end_capture(stream));
  EXPECT_EQ(answer_of(point), Progress::complete);
}

TEST_F(Points, AdvanceGivesTheWorstAnswerAndKeepsWhatIsNotComplete) {
  const Stream idle, busy;
  Gate gate{busy};
  std::vector<Point> points;
  EXPECT_EQ(detail::advance(points), Progress::complete);
  points.push_back(point_of(idle));
  points.push_back(point_of(busy));
  EXPECT_EQ(answer_of(points.front()), Progress::complete);
  EXPECT_EQ(detail::advance(points), Progress::pending);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points.front().slot(), key_of(busy).slot);
  gate.open();
  while (detail::advance(points) == Progress::pending) std::this_thread::yield();
  EXPECT_TRUE(points.empty());
}

TEST_F(Points, ANumberThatIsAskedForWhileABorrowedStreamEndsIsTaken) {
  const native::stream handle = Stream{}.release();
  auto borrowed = std::make_shared<Stream>(conformance::borrow(handle));
  const Point kept = point_of(*borrowed);
  Slot& slot = *kept.slot();
  const Stream other;
  {
    const detail::HandleLock marking{key_of(*borrowed)};  // as a thread whose mark will fail
    other.launch_host_func([last = std::move(borrowed)]() mutable { last.reset(); });
    other.synchronize();
    static_cast<void>(slot.timeline.ask());
  }
  EXPECT_TRUE(conformance::eventually([&] { return !slot.timeline.is_asked(); }));
  EXPECT_EQ(backend::stream_destroy(handle), backend::ok);
}

/// Another thread was the first to make the default stream.
TEST_F(Points, ASlotThatWasMadeForADefaultStreamInVainIsAsGoodAsNew) {
  {
    const detail::FreshSlot slot = detail::take_slot(0);
    slot->is_default = true;
    detail::publish_default(slot.get());
  }
  const Stream next;
  EXPECT_FALSE(key_of(next).slot->is_default);
  EXPECT_EQ(to_string(next).find("default"), std::string::npos);
}

/// A host function cannot record: the next mark of the stream takes what it has asked for.
TEST_F(Points, TheNextMarkTakesWhatAHostFunctionHasAskedFor) {
  const Stream used, other;
  Point asked = point_of(used), next = point_of(used);
  Gate gate{used};
  other.launch_host_func([&] { asked.record(); });
  other.synchronize();
  EXPECT_EQ(asked.progress(), Progress::stalled);
  next.record();
  EXPECT_EQ(asked.progress(), Progress::pending);
  gate.open();
  EXPECT_EQ(answer_of(next), Progress::complete);
  EXPECT_EQ(asked.progress(), Progress::complete);
}

}  // namespace
