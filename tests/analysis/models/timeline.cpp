// SPDX-License-Identifier: Apache-2.0
/// Checks of the numbers of a stream's marks: what hangs at a mark becomes due once, in the order
/// of the numbers, after the work before the mark, whoever records and advances at once. A slot is
/// another stream's only when no mark is pending. What a stream writes, and what becomes due, are
/// plain data: something that is due too early is a race.
#include "timeline/timeline.hpp"

#include "device.hpp"

#include "slot/point.hpp"

#include <utility>

namespace {

using namespace checks;
using model::expect;
using runnel::detail::Deferred;
using runnel::detail::EventRef;
using runnel::detail::Progress;
using runnel::detail::Slot;
using runnel::detail::Timeline;

/// Waits for a mark behind work that writes.
struct Waiting : Deferred {
  int written = 0;
  uint64_t number = 0;
  int times_due = 0;
};

struct World {
  World() { a.owned = true; }
  Slot& a = make_slot(1);
  Waiting all[5];
  uint64_t last_position = 0;  // of the last mark in the stream
  uint64_t last_due = 0;
};

bool mark(World& w, Waiting& waiting) {
  submit(w.a.handle, [&waiting] { waiting.written = 1; });
  Timeline::Recorder recorder{w.a.timeline};
  EventRef event = runnel::detail::take_event(0, {}, "mark");
  static_cast<void>(backend::event_record(event.get(), w.a.handle));
  const uint64_t position = event.get()->number;
  return recorder.mark(std::move(event), waiting, true, [&](uint64_t number) {
    waiting.number = number;
    expect(std::exchange(w.last_position, position) <= position, "it is not the stream's order");
  });
}
void advance(World& w) {
  w.a.timeline.advance([](native::event event) { return backend::event_query(event); },
                       [&w](Deferred& hook, const EventRef&, backend::status s) {
                         auto& waiting = static_cast<Waiting&>(hook);
                         expect(s == backend::ok, "a mark has failed");
                         expect(waiting.written == 1, "it is due too early");
                         expect(waiting.number > std::exchange(w.last_due, waiting.number),
                                "it is not its turn");
                         ++waiting.times_due;
                       });
}
/// In the end all are due, each once, and all events are back in the pool.
void expect_all_due(World& w, int count) {
  synchronize(w.a.handle);
  advance(w);
  for (int i : range(count)) expect(w.all[i].times_due == 1, "it was not due once");
  expect(w.a.timeline.is_idle(), "a mark is pending");
  expect_all_pooled();
}

void two_record(World& w) {
  together([&] { mark(w, w.all[0]), mark(w, w.all[1]); }, [&] { mark(w, w.all[2]); },
           [&] { advance(w), advance(w); });
  expect_all_due(w, 3);
}

void two_advance(World& w) {
  const auto twice = [&] { advance(w), advance(w); };
  together([&] { mark(w, w.all[0]), mark(w, w.all[1]); }, twice, twice);
  expect_all_due(w, 2);
}

/// Several marks may be complete at once, and others are added meanwhile.
void a_burst(World& w) {
  for (int i : range(4)) mark(w, w.all[i]);
  together([&] { mark(w, w.all[4]); }, [&] { advance(w), advance(w); });
  expect_all_due(w, 5);
}

/// The watch ends only when no mark is pending, and a later mark begins another.
void watch(World& w) {
  auto& watches = lasting<sync::Atomic<int>>();
  together(
      [&] {
        for (int i : range(3))
          if (mark(w, w.all[i])) watches.fetch_add(1);
      },
      [&] {
        repeat(3, [&] {
          advance(w);
          if (watches.load() > 0 && w.a.timeline.stop_watching()) watches.fetch_sub(1);
        });
      });
  expect(w.a.timeline.is_idle() || watches.load() == 1, "a pending mark is not watched");
  expect_all_due(w, 3);
}

/// The stream ends while its mark is pending, and another one may take the slot.
void slot_is_used_again(World& w) {
  const native::stream stream = w.a.handle;
  mark(w, w.all[0]);
  together([&] { advance(w), advance(w); }, [&] { retire_slot(&w.a); },
           [&] {
             if (reuse_slot(3) != nullptr) expect(w.all[0].written == 1, "it was freed too early");
           });
  synchronize(stream);
  advance(w);
  expect(free_slots().count == 1, "the slot was not freed once");
}

/// Work that was submitted before a number was asked for comes before the mark that gets it.
void asked(World& w) {
  int& written = lasting<int>();
  together(
      [&] {
        submit(w.a.handle, [&written] { written = 1; });
        const uint64_t number = w.a.timeline.ask();
        repeat(4, [&] {
          if (w.a.timeline.progress(number) == Progress::complete) written = 2;
          sync::yield();
        });
      },
      [&] { mark(w, w.all[0]), advance(w); }, [&] { mark(w, w.all[1]), advance(w); });
  mark(w, w.all[2]);
  expect(!w.a.timeline.is_asked(), "a mark was not enough");
  expect_all_due(w, 3);
}

/// A number without an event is not complete because a mark is that was recorded meanwhile.
void no_event(World& w) {
  int& written = lasting<int>();
  together(
      [&] {
        submit(w.a.handle, [&written] { written = 1; });
        const uint64_t number = w.a.timeline.ask();
        repeat(3, [&] {
          if (w.a.timeline.progress(number) == Progress::complete) written = 2;
          sync::yield();
        });
      },
      [&] { mark(w, w.all[0]), advance(w); },
      [&] {
        const Timeline::Recorder alone{w.a.timeline, std::try_to_lock};
        if (alone) w.a.timeline.skip();
      });
  synchronize(w.a.handle);
  advance(w);
}

/// A wait for the device completes what has no event.
void a_wait(World& w) {
  int& written = lasting<int>();
  submit(w.a.handle, [&written] { written = 1; });
  const uint64_t end = w.a.timeline.skip();
  together(
      [&] {
        const uint64_t last = w.a.timeline.begin_wait();
        synchronize(w.a.handle);
        w.a.timeline.end_wait(last, Progress::complete);
      },
      [&] {
        repeat(3, [&] {
          if (w.a.timeline.progress(end) == Progress::complete) written = 2;
        });
      },
      [&] { static_cast<void>(w.a.timeline.ask()); });
  expect(w.a.timeline.progress(end) == Progress::complete, "the wait told nothing");
}

}  // namespace

MODEL_CHECKS(CHECK(two_record), CHECK(two_advance), CHECK(a_burst), CHECK(watch),
             CHECK(slot_is_used_again), CHECK(asked), CHECK(a_wait), CHECK(no_event))
