// SPDX-License-Identifier: Apache-2.0
/// Tests of deferred work with streams of the host backend: when it runs, and on which thread.

#include "slot/reclaimer.hpp"

#include <runnel/detail/access.hpp>

#include "../conformance/support.hpp"

namespace {

using namespace runnel;
using namespace std::chrono_literals;
using conformance::Gate, conformance::eventually;
using detail::Deferred;
using detail::DeferredWork;
using detail::Point;

Point point_of(StreamRef stream) { return Point{detail::key_of(stream)}; }

/// Says that it has run, and where.
struct Work : DeferredWork {
  Work() { run = said; }
  static void said(Deferred& self) noexcept {
    auto& work = static_cast<Work&>(self);
    work.on_service_thread = detail::is_service_thread();
    work.has_run = true;
  }
  std::atomic_bool has_run{false};
  bool on_service_thread = false;
};
bool comes(const Work& work) {
  return eventually([&] { return work.has_run.load(); });
}

class Reclaiming : public testing::Test {
 protected:
  void SetUp() override { SKIP_IF(Device::count() == 0, "there is no device"); }
};

TEST_F(Reclaiming, WorkRunsOnceAllItsPointsAreComplete) {
  const Stream first, second, other;
  Gate one, two;
  one.close_on(first);
  two.close_on(second);
  Work work, free;
  work.own = point_of(first);
  work.others.push_back(point_of(second));
  free.own = point_of(other);
  run_after(work);
  run_after(free);
  EXPECT_TRUE(comes(free)) << "work of a stream that is idle waited for another stream";
  EXPECT_TRUE(free.on_service_thread);
  one.open();
  first.synchronize();
  EXPECT_FALSE(work.has_run);
  two.open();
  EXPECT_TRUE(comes(work));
  EXPECT_FALSE(work.is_unknown);
}

TEST_F(Reclaiming, WorkThatComesLaterIsNotWaitedFor) {
  const Stream stream;
  Gate before, after;
  before.close_on(stream);
  Work first, second;
  first.own = point_of(stream);
  run_after(first);
  after.close_on(stream);
  second.own = point_of(stream);
  run_after(second);
  before.open();
  EXPECT_TRUE(comes(first));
  EXPECT_FALSE(second.has_run);
  after.open();
  EXPECT_TRUE(comes(second));
}

TEST_F(Reclaiming, TheEndOfAStreamIsWaitedFor) {
  Work work;
  Gate gate;
  {
    const Stream stream;
    gate.close_on(stream);
    work.own = point_of(stream);
  }
  run_after(work);
  EXPECT_TRUE(gate.reached());
  EXPECT_FALSE(work.has_run);
  gate.open();
  EXPECT_TRUE(comes(work));
}

TEST_F(Reclaiming, AHostFunctionMayDefer) {
  const Stream stream, used;
  Gate gate{used};
  Work work, at_once;
  work.own = point_of(used);
  stream.launch_host_func([&] {
    run_after(work);
    run_later(at_once);
  });
  EXPECT_TRUE(comes(at_once));
  EXPECT_FALSE(work.has_run);
  gate.open();
  EXPECT_TRUE(comes(work));
}

/// Only the owning thread can record on its default stream, and this one makes no call any more.
TEST_F(Reclaiming, AWaitForTheDevicesCompletesWhatNobodyCanReport) {
  Work work;
  std::atomic_bool is_over{false};
  std::atomic_bool is_held{false};
  std::thread owner{[&] {
    const StreamRef own = StreamRef::per_thread_default(Device{0});
    own.launch_host_func([] {});
    work.own = point_of(own);
    is_held = true;
    while (!is_over) std::this_thread::sleep_for(1ms);
  }};
  for (test_support::Pauses pause; !is_held;) pause();
  run_after(work);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(work.has_run);
  if (detail::complete_deferred_work())
    EXPECT_TRUE(comes(work));
  else
    GTEST_LOG_(INFO) << "an earlier test has captured a stream";
  is_over = true;
  owner.join();
  EXPECT_TRUE(comes(work));
}

/// The last Stream of a borrowed handle ends in a host function, where no event can be recorded.
TEST_F(Reclaiming, AWaitForTheDevicesCompletesWhatNoEventReports) {
  const native::stream handle = Stream{Device{0}}.release();
  auto borrowed = std::make_optional(conformance::borrow(handle));
  Gate gate{*borrowed};
  Work work;
  work.own = point_of(*borrowed);
  const Stream other;
  other.launch_host_func([&] { borrowed.reset(); });
  other.synchronize();
  run_after(work);
  EXPECT_TRUE(gate.reached());
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(work.has_run);
  gate.open();
  EXPECT_TRUE(comes(work));
  EXPECT_FALSE(work.is_unknown);
  const Stream ends_it = conformance::take(handle);
}

/// Only the first of a stream's is asked for in a round.
TEST_F(Reclaiming, ManyThatWaitForOneStreamAreCheap) {
  constexpr int count = 20'000;
  const Stream stream;
  std::vector<Work> all(count);
  Gate gate{stream};
  for (Work& work : all) {
    work.own = point_of(stream);
    run_after(work);
  }
  const auto begin = std::chrono::steady_clock::now();
  gate.open();
  for (const Work& work : all) EXPECT_TRUE(comes(work));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

/// The mark's native event may have been recorded in a capture before.
TEST_F(Reclaiming, AMarkIsNoPlaceInACaptureThatIsStillOpen) {
  const Stream captured, other;
  begin_capture(captured);
  static_cast<void>(captured.record_event());
  Event mark;
  detail::submit_completion(other, mark, detail::make_completion([](const Outcome&) {}));
  EXPECT_NO_THROW(mark.synchronize());
  static_cast<void>(end_capture(captured));
}

}  // namespace
