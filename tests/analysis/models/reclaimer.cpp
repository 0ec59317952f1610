// SPDX-License-Identifier: Apache-2.0
/// Checks of the service thread: deferred work runs once, after the work before its points, and no
/// wake-up is lost. What a stream writes and what runs later are plain data: work that runs too
/// early is a race.
#include "slot/reclaimer.hpp"

#include "base/operation.hpp"
#include "device.hpp"

#include <utility>

runnel::Outcome::Outcome(std::exception_ptr error) noexcept : error_{std::move(error)} {}

namespace {
runnel::native::stream awaited = nullptr;  // by a wait for the device
bool is_wait_known = true;                 // whether that wait succeeds
constexpr int lost = 700;
}  // namespace

namespace runnel::inline RUNNEL_ABI::backend {
status device_synchronize() noexcept {
  checks::synchronize(awaited);
  return is_wait_known ? ok : lost;
}
}  // namespace runnel::inline RUNNEL_ABI::backend
namespace runnel::inline RUNNEL_ABI::detail {

void ScopedEvent::begin(const Operation&) noexcept {}
void ScopedEvent::end() noexcept {}
void call_at_exit(ExitHook&) noexcept {}
void abandon_own_captures() noexcept {}
void reset_thread_settings() noexcept {}
std::exception_ptr kept_failure(Slot&) noexcept { return nullptr; }
bool takes_part_in_capture(int) noexcept { return false; }
void note_device_wait(int) noexcept {}
int device_count() noexcept { return 1; }

}  // namespace runnel::inline RUNNEL_ABI::detail

namespace {

using namespace checks;
using model::expect;
using runnel::detail::Completion;
using runnel::detail::Deferred;
using runnel::detail::DeferredWork;
using runnel::detail::Point;
using runnel::detail::Slot;
using runnel::detail::StreamKey;

struct Work : DeferredWork {
  Work() { run = count; }
  static void count(Deferred& self) noexcept {
    auto& work = static_cast<Work&>(self);
    if (work.written != nullptr) expect(*work.written == 1, "it ran too early");
    ++work.runs;
    work.done.open();
  }
  int* written = nullptr;
  int runs = 0;
  Gate done;
};

struct World {
  World() { a.owned = true; }
  Slot& a = make_slot(1);
  Slot& b = make_slot(2);
  int* number = new int{0};
  Work first, second;
};

void write_in(World& w) {
  submit(w.a.handle, [number = w.number] { *number = 1; });
}

/// Two threads defer work, one of them behind two streams.
void after_points(World& w) {
  w.first.written = w.number;
  w.first.own = Point{StreamKey{&w.a, 1}};
  w.first.others.push_back(Point{StreamKey{&w.b, 2}});
  w.second.own = Point{StreamKey{&w.b, 2}};
  together([&] { write_in(w), run_after(w.first); }, [&] { run_after(w.second); });
  w.first.done.wait();
  w.second.done.wait();
  expect(w.first.runs == 1 && w.second.runs == 1, "it did not run once");
}

/// The stream ends while the thread polls it.
void stream_ends(World& w) {
  w.first.written = w.number;
  w.first.own = Point{StreamKey{&w.a, 1}};
  w.second.own = Point{StreamKey{&w.a, 1}};
  write_in(w);
  together([&] { run_after(w.first); }, [&] { retire_slot(&w.a); });
  run_after(w.second);
  w.first.done.wait();
  w.second.done.wait();
}

/// The stream ends without an event. The service thread waits for the device instead.
void lose_stream(bool is_known) {
  auto& w = lasting<World>();
  awaited = w.a.handle;
  is_wait_known = is_known;
  w.a.owned = false;
  w.first.written = w.number;
  w.first.own = Point{StreamKey{&w.a, 1}};
  write_in(w);
  w.second.own = Point{StreamKey{&w.b, 2}};
  retire_slot(&w.a, true);
  together([&] { run_after(w.first); }, [&] { run_after(w.second); });
  w.first.done.wait();
  w.second.done.wait();
  expect(w.first.is_unknown != is_known, "the wait told something else");
}
void stream_is_lost() { lose_stream(true); }
void wait_fails() { lose_stream(false); }

/// A completion function of the first stream: it says whether those of its thread before it were
/// called.
struct Called : Completion {
  Called(int& all, int position)
      : Completion{[](Completion& self, const runnel::Outcome&) {
                     auto& called = static_cast<Called&>(self);
                     expect(called.at == ++called.calls, "not in order");
                     called.done.open();
                   },
                   [](Completion*) noexcept {}},
        calls{all},
        at{position} {}
  int& calls;
  const int at;
  Gate done;
};

void submit_function(World& w, Called& called) {
  submit(w.a.handle, [] {});
  called.slot = &w.a;
  called.stream_id = 1;
  runnel::detail::reclaimer().start("");
  bool is_new = false;
  {
    runnel::detail::Timeline::Recorder recorder{w.a.timeline};
    runnel::detail::EventRef event = runnel::detail::take_event(0, {}, "");
    static_cast<void>(runnel::backend::event_record(event.get(), w.a.handle));
    is_new = recorder.mark(std::move(event), called, true, [](uint64_t) {});
  }
  if (is_new) runnel::detail::reclaimer().watch(w.a);
  runnel::detail::reclaimer().wake();
}

/// Functions of two threads are submitted while earlier ones are called.
void functions_in_order(World& w) {
  const auto submit_three = [&] {
    int& calls = lasting<int>();
    auto &first = *new Called{calls, 1}, &second = *new Called{calls, 2},
         &third = *new Called{calls, 3};
    submit_function(w, first);
    submit_function(w, second);
    first.done.wait();
    submit_function(w, third);
    third.done.wait();
  };
  together(submit_three, submit_three);
}

/// The thread is about to sleep.
void wake(World& w) {
  run_later(w.first);
  w.first.done.wait();
  repeat(3, [&] { sync::yield(); });
  run_later(w.second);
  w.second.done.wait();
}

}  // namespace

MODEL_CHECKS(CHECK(after_points), CHECK(stream_ends), CHECK(stream_is_lost), CHECK(wait_fails),
             CHECK(functions_in_order), CHECK(wake))
