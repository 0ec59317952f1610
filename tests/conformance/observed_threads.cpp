// SPDX-License-Identifier: Apache-2.0
// docs/thread-safety.md: a hook is set, and the checker is started and stopped, while other threads
// use the library.
#include <barrier>
#include <runnel/hooks.hpp>

#include "support.hpp"

namespace {
using namespace conformance;
constexpr int threads = 4;

std::atomic_long told_to_one{0}, told_to_other{0};
void one(const HookEvent&) noexcept { ++told_to_one; }
void other(const HookEvent&) noexcept { ++told_to_other; }

class ObservedThreads : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    told_to_one = told_to_other = 0;
    was_checking_ = RaceChecker::is_on();
  }
  void TearDown() override {
    set_hook(nullptr);
    RaceChecker::set_handler(nullptr);
    was_checking_ ? RaceChecker::start() : RaceChecker::stop();
    Conformance::TearDown();
  }
  /// Thread 0 calls `change` until the others have worked on streams of their own, with waits
  /// wherever they are needed.
  template <class F>
  static void work_beside(F change) {
    std::atomic_int left{threads - 1};
    on_threads(threads, [&](int i) {
      if (i == 0) {
        for (int round = 0; left > 0; ++round) change(round);
        return;
      }
      work(i);
      --left;
    });
  }

 private:
  static void work(int i) {
    const Stream up, down;
    const Bytes in = pattern(1000, static_cast<unsigned>(i));
    repeat(60, [&] {
      PinnedBytes back{in.size()};
      DeviceBytes there{in.size(), up};
      copy(up, there, in);
      enqueue_nothing(up);
      down.wait_event(up.record_event());
      copy(down, back, there);
      up.wait_stream(down);  // `there` is freed in `up`
      down.synchronize();
      EXPECT_TRUE(std::ranges::equal(in, back));
    });
    up.synchronize();
  }
  bool was_checking_ = false;
};

TEST_F(ObservedThreads, AHookIsSetBesideOperations) {
  work_beside([](int round) { set_hook(round % 3 == 0 ? one : round % 3 == 1 ? other : nullptr); });
  set_hook(nullptr);
  const long before = told_to_one + told_to_other;
  EXPECT_TRUE(runs(Stream{}));
  EXPECT_EQ(told_to_one + told_to_other, before);
}

TEST_F(ObservedThreads, TheHookThatStaysIsTold) {
  const Stream stream;
  Event event;
  std::barrier<> step{threads};
  on_threads(threads, [&](int i) {
    for (int round : range(50)) {
      step.arrive_and_wait();
      set_hook(i % 2 == 0 ? one : nullptr);
      step.arrive_and_wait();
      if (i != 0) continue;
      const long before = told_to_one;
      event.record(stream);
      const bool was_told = told_to_one > before;
      EXPECT_EQ(set_hook(nullptr) == one, was_told) << "round " << round;
    }
  });
}

TEST_F(ObservedThreads, TheCheckerIsStartedAndStoppedBesideOperations) {
  const size_t before = RaceChecker::reports();
  work_beside([](int round) {
    RaceChecker::set_handler([](const char* report, void*) { ADD_FAILURE() << report; }, nullptr);
    round % 2 == 0 ? RaceChecker::start() : RaceChecker::stop();
    EXPECT_EQ(RaceChecker::is_on(), round % 2 == 0);
  });
  EXPECT_EQ(RaceChecker::reports(), before);
}

TEST_F(ObservedThreads, AllAtOnce) {
  work_beside([](int round) {
    set_hook(round % 2 == 0 ? one : nullptr);
    round % 4 < 2 ? RaceChecker::start() : RaceChecker::stop();
  });
}

}  // namespace
