// SPDX-License-Identifier: Apache-2.0
/// Tests of the numbers of a stream's marks, without a device: the events are numbers, and a test
/// says which have happened.
#include "timeline/timeline.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

using namespace runnel;
using detail::Deferred;
using detail::EventNode;
using detail::EventRef;
using detail::Progress;
using detail::Timeline;
using std::uint64_t, std::uintptr_t;

constexpr backend::status not_ready = static_cast<backend::status>(errc::not_ready);
constexpr backend::status failed = not_ready + 1'000;

/// Something that waits for a mark.
struct Waiting : Deferred {
  uint64_t number = 0;
  backend::status status = not_ready;
};

class Timelines : public testing::Test {
 protected:
  static native::event event_of(uintptr_t number) {
    return reinterpret_cast<native::event>(number);
  }
  EventRef event() {
    return detail::wrap_event(event_of(++recorded_), 0, EventNode::Origin::borrowed);
  }
  /// Records a mark at which nothing hangs. Returns its number.
  uint64_t record(bool is_in_order = true) {
    Timeline::Recorder recorder{timeline_};
    return recorder.mark(event(), is_in_order);
  }
  /// Records a mark whose event has the number of all events so far.
  bool mark(Waiting& waiting, bool is_in_order = true) {
    Timeline::Recorder recorder{timeline_};
    return recorder.mark(event(), waiting, is_in_order,
                         [&](uint64_t number) { waiting.number = number; });
  }
  backend::status query(native::event event) {
    ++queries_;
    const auto number = reinterpret_cast<uintptr_t>(event);
    return failed_.contains(number) ? failed : number <= complete_ ? backend::ok : not_ready;
  }
  std::vector<Waiting*> advance() {
    std::vector<Waiting*> due;
    timeline_.advance([&](native::event event) { return query(event); },
                      [&](Deferred& hook, const EventRef&, backend::status s) {
                        due.push_back(static_cast<Waiting*>(&hook));
                        due.back()->status = s;
                      });
    return due;
  }

  /// The events of what is still pending are freed with it.
  void TearDown() override {
    timeline_.advance([](native::event) { return backend::ok; },
                      [](Deferred&, const EventRef&, backend::status) {});
  }

  Timeline timeline_;
  uintptr_t recorded_ = 0;
  uintptr_t complete_ = 0;
  std::set<uintptr_t> failed_;
  int queries_ = 0;
};

TEST_F(Timelines, WhatWaitsBecomesDueInTheOrderOfTheNumbers) {
  std::vector<Waiting> all(20);
  for (Waiting& each : all) mark(each);
  EXPECT_EQ(timeline_.recorded(), 20U);
  EXPECT_TRUE(advance().empty());
  std::size_t next = 0;
  for (uintptr_t complete : {1U, 2U, 7U, 19U, 20U}) {
    EXPECT_FALSE(timeline_.is_idle());
    complete_ = complete;
    const std::vector<Waiting*> due = advance();
    EXPECT_EQ(due.size(), complete - next);
    for (const Waiting* each : due) {
      EXPECT_EQ(each, &all[next++]);
      EXPECT_EQ(each->number, next);
      EXPECT_EQ(each->status, backend::ok);
    }
  }
  EXPECT_TRUE(timeline_.is_idle());
}

TEST_F(Timelines, ABurstCostsAFewQueries) {
  std::vector<Waiting> all(10'000);
  for (Waiting& each : all) mark(each);
  advance();
  EXPECT_EQ(queries_, 1);
  complete_ = 9'000;
  EXPECT_EQ(advance().size(), 9'000U);
  EXPECT_LE(queries_, 40);
}

TEST_F(Timelines, MarksThatMayBeOfSeveralStreamsAreAskedOneAfterTheOther) {
  std::vector<Waiting> all(6);
  for (Waiting& each : all) mark(each, &each != &all[2]);
  complete_ = 4;
  EXPECT_EQ(advance().size(), 4U);
  EXPECT_EQ(queries_, 5);
}

TEST_F(Timelines, AFailedMarkEndsWithItsStatusAndHoldsNoneUp) {
  std::vector<Waiting> all(5);
  for (Waiting& each : all) mark(each);
  failed_ = {1, 5};  // A later one that is complete would say that the fifth is, too.
  complete_ = 5;
  EXPECT_EQ(advance().size(), 5U);
  for (const Waiting& each : all)
    EXPECT_EQ(each.status, failed_.contains(each.number) ? failed : backend::ok);
  EXPECT_EQ(timeline_.progress(1), Progress::complete) << "the second one is complete";
  EXPECT_EQ(timeline_.progress(5), Progress::unknown);
  EXPECT_FALSE(timeline_.is_idle());
}

TEST_F(Timelines, OnABorrowedStreamALaterMarkDoesNotCompleteAFailedOne) {
  failed_ = {1};
  complete_ = 3;
  for (int i = 0; i < 3; ++i) record(false);
  advance();
  EXPECT_EQ(timeline_.progress(1), Progress::unknown);
  EXPECT_EQ(timeline_.progress(3), Progress::unknown);
  const uint64_t last = timeline_.begin_wait();
  EXPECT_EQ(timeline_.progress(1), Progress::pending);
  timeline_.end_wait(last, Progress::complete);
  EXPECT_EQ(timeline_.progress(3), Progress::complete);
  complete_ = 4;
  record(false);
  advance();
  EXPECT_TRUE(timeline_.is_idle());
}

TEST_F(Timelines, TheNextMarkThatBeginsTakesWhatWasAskedFor) {
  const uint64_t first = timeline_.ask();
  EXPECT_TRUE(timeline_.is_asked());
  EXPECT_FALSE(timeline_.is_idle());
  EXPECT_EQ(timeline_.progress(first), Progress::stalled);
  uint64_t beside = 0;
  {
    Timeline::Recorder recorder{timeline_};
    EXPECT_FALSE((Timeline::Recorder{timeline_, std::try_to_lock}));
    beside = timeline_.ask();
    EXPECT_EQ(recorder.mark(event(), true), first);
  }
  EXPECT_EQ(timeline_.progress(first), Progress::pending);
  EXPECT_EQ(timeline_.progress(beside), Progress::stalled)
      << "that record may have come before what it was asked for";
  EXPECT_GE(record(), beside);
  EXPECT_FALSE(timeline_.is_asked());
  complete_ = 1;
  advance();
  EXPECT_EQ(timeline_.progress(first), Progress::complete);
  EXPECT_EQ(timeline_.progress(beside), Progress::pending);
}

TEST_F(Timelines, AMarkThatWasNotMadeLeavesWhatWasAskedForBesideIt) {
  uint64_t beside = 0;
  {
    const Timeline::Recorder recorder{timeline_};
    beside = timeline_.ask();
  }
  EXPECT_GE(record(), beside) << "one mark is enough";
}

TEST_F(Timelines, AMarkLeavesWhatWasAskedForBesideItThoughAnEarlierOneWasNotMade) {
  uint64_t earlier = 0, beside = 0;
  {
    const Timeline::Recorder recorder{timeline_};
    earlier = timeline_.ask();
  }
  {
    Timeline::Recorder recorder{timeline_};
    beside = timeline_.ask();
    EXPECT_GE(recorder.mark(event(), true), earlier);
  }
  EXPECT_EQ(timeline_.progress(beside), Progress::stalled);
  EXPECT_GE(record(), beside);
}

TEST_F(Timelines, AnIdleStreamCompletesWhatWasAskedForBeforeTheQuestion) {
  const uint64_t before = timeline_.ask();
  uint64_t beside = 0;
  {
    Timeline::Recorder recorder{timeline_};
    beside = timeline_.ask();
    recorder.complete();
  }
  EXPECT_EQ(timeline_.progress(before), Progress::complete);
  EXPECT_EQ(timeline_.progress(beside), Progress::stalled);
  EXPECT_GE(record(), beside);
}

TEST_F(Timelines, AWaitThatBeginsBesideARecordLeavesWhatWasAskedFor) {
  uint64_t beside = 0;
  {
    Timeline::Recorder recorder{timeline_};
    beside = timeline_.ask();
    const uint64_t last = timeline_.begin_wait();
    static_cast<void>(recorder.mark(event(), true));
    timeline_.end_wait(last, Progress::complete);
  }
  complete_ = 1;
  advance();
  EXPECT_EQ(timeline_.progress(beside), Progress::stalled) << "its work came after that record";
  EXPECT_GE(record(), beside);
}

TEST_F(Timelines, AStreamMayPassWhatAWaitIncludes) {
  const uint64_t asked = timeline_.ask(), last = timeline_.begin_wait();
  EXPECT_TRUE(timeline_.is_asked());
  EXPECT_GE(record(), asked);
  complete_ = 1;
  advance();
  EXPECT_EQ(timeline_.progress(asked), Progress::complete);
  const uint64_t later = timeline_.ask();
  timeline_.end_wait(last, Progress::complete);
  EXPECT_EQ(timeline_.progress(later), Progress::stalled);
  timeline_.end_wait(timeline_.begin_wait(), Progress::complete);
  EXPECT_EQ(timeline_.progress(later), Progress::complete);
}

TEST_F(Timelines, WorkThatFollowsTheBeginOfAWaitIsNoPartOfIt) {
  const uint64_t asked = timeline_.ask(), last = timeline_.begin_wait();
  const uint64_t later = timeline_.ask(), marked = record(), end = timeline_.skip();
  const uint64_t beside = timeline_.begin_wait();
  timeline_.end_wait(last, Progress::complete);
  EXPECT_EQ(timeline_.progress(asked), Progress::complete);
  for (const uint64_t each : {later, marked, end})
    EXPECT_EQ(timeline_.progress(each), Progress::pending);
  timeline_.end_wait(beside, Progress::complete);
  EXPECT_TRUE(timeline_.is_idle());
}

TEST_F(Timelines, ANumberWithoutAnEventIsUnknownUntilAWaitForTheDevices) {
  const uint64_t asked = timeline_.ask(), end = timeline_.skip();
  EXPECT_GE(end, asked);
  EXPECT_EQ(timeline_.progress(end), Progress::unknown);
  timeline_.end_wait(timeline_.begin_wait(), Progress::lost);
  EXPECT_EQ(timeline_.progress(end), Progress::lost);
  EXPECT_EQ(timeline_.progress(timeline_.skip()), Progress::unknown) << "it came after the wait";
  timeline_.end_wait(timeline_.begin_wait(), Progress::complete);
  EXPECT_EQ(timeline_.progress(end), Progress::complete);
  EXPECT_TRUE(timeline_.is_idle());
}

TEST_F(Timelines, AllIsCompleteForTheOwnerWhoHasWaited) {
  record();
  const uint64_t asked = timeline_.ask();
  timeline_.complete_all();
  EXPECT_EQ(timeline_.progress(asked), Progress::complete);
  EXPECT_FALSE(timeline_.is_asked());
  complete_ = 1;
  advance();
  EXPECT_TRUE(timeline_.is_idle());
}

TEST_F(Timelines, AStreamWaitsForTheOldestEventBehindANumber) {
  for (int i = 0; i < 3; ++i) record();
  EXPECT_EQ(timeline_.event_at(2).get(), event_of(2));
  complete_ = 2;
  advance();
  EXPECT_EQ(timeline_.event_at(1).get(), event_of(3));
  EXPECT_FALSE(timeline_.event_at(4));
}

TEST_F(Timelines, AMarkWithoutAHookIsWatchedIfItIsAwaited) {
  const uint64_t first = record();
  EXPECT_TRUE(timeline_.watch_to(first));
  EXPECT_FALSE(timeline_.watch_to(first));
  record();
  EXPECT_FALSE(timeline_.stop_watching());
  complete_ = 1;
  advance();
  EXPECT_TRUE(timeline_.stop_watching()) << "nothing waits for the second one";
  EXPECT_TRUE(timeline_.watch_to(timeline_.ask()));
  complete_ = 2;
  advance();
  EXPECT_FALSE(timeline_.stop_watching()) << "a mark was asked for";
}

TEST_F(Timelines, AWatchEndsWithTheLastPendingMark) {
  Waiting first, second, third;
  EXPECT_TRUE(mark(first));
  EXPECT_FALSE(mark(second));
  EXPECT_FALSE(timeline_.stop_watching());
  complete_ = 2;
  EXPECT_EQ(advance().size(), 2U);
  EXPECT_TRUE(timeline_.stop_watching());
  EXPECT_TRUE(mark(third));
  EXPECT_EQ(third.number, 3U) << "the numbers go on";
}

TEST_F(Timelines, ThreadsThatRecordAndAdvanceAtOnceLoseNothing) {
  constexpr std::size_t threads = 4, count = 5'000;
  std::vector<std::vector<Waiting>> all(threads);
  for (std::vector<Waiting>& of : all) of.resize(count);
  std::atomic<std::size_t> due{0}, recording{threads};
  std::atomic<uint64_t> last{0};
  std::atomic_bool is_in_order{true};
  std::vector<std::thread> run;
  for (std::vector<Waiting>& of : all)
    run.emplace_back([&, this] {
      for (Waiting& each : of) mark(each);
      --recording;
    });
  for (int i = 0; i < 2; ++i)
    run.emplace_back([&, this] {
      while (recording > 0 || !timeline_.is_idle())
        timeline_.advance([](native::event) { return backend::ok; },
                          [&](Deferred& hook, const EventRef&, backend::status) {
                            const uint64_t number = static_cast<Waiting&>(hook).number;
                            if (last.exchange(number) + 1 != number) is_in_order = false;
                            ++due;
                          });
    });
  for (std::thread& each : run) each.join();
  EXPECT_EQ(due, threads * count);
  EXPECT_TRUE(is_in_order);
}

}  // namespace
