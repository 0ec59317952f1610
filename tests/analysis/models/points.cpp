// SPDX-License-Identifier: Apache-2.0
/// Checks of Point: when a point is complete, the work that it stands for is. The stream writes
/// plain data, and so does whoever has found the point complete: an answer that comes too early is
/// a race. A slot is another stream's only when all that the first one has received is complete.
#include "slot/point.hpp"

#include "device.hpp"

#include "function/host_writers.hpp"

namespace {

using namespace checks;
using model::expect;
using runnel::detail::InCapture;
using runnel::detail::Point;
using runnel::detail::Progress;
using runnel::detail::Slot;
using runnel::detail::StreamKey;

struct World {
  World() { a.owned = true; }
  int* number = new int{0};
  Slot& a = make_slot(1);
  Slot& b = make_slot(2);
  Point first{StreamKey{&a, 1}};
  Point second{StreamKey{&a, 1}};
};

void write_in(World& w) {
  submit(w.a.handle, [number = w.number] { *number = 1; });
}
/// A world whose first stream has that to do.
World& busy_world() {
  const model::Calm calm;
  auto& w = lasting<World>();
  write_in(w);
  return w;
}
/// Polls some times, and writes the number once the point is complete.
Progress poll_and_write(World& w, Point& point, int most = 3) {
  Progress progress = Progress::pending;
  for (int i = 0; i < most && progress != Progress::complete; ++i) {
    progress = point.poll();
    if (progress == Progress::complete) *w.number = 2;
  }
  return progress;
}
/// Another stream takes the slot, if the first one is complete.
void take_slot_if_free(World& w) {
  Slot* const slot = reuse_slot(3);
  if (slot == nullptr) return;
  expect(w.first.progress() == Progress::complete, "the slot was used too early");
  *w.number = 2;
  submit(slot->handle, [] {});
  expect(w.first.progress() == Progress::complete, "it is a point of the next stream");
}
/// In the end the slot is free, and was freed once, and all events are back in the pool.
void expect_slot(World& w) {
  expect(reuse_slot(7) == &w.a, "the slot was not freed");
  expect(free_slots().count == 1, "the slot was freed twice");
  expect_all_pooled();
}

void poll() {
  World& w = busy_world();
  together([&] { poll_and_write(w, w.first); }, [&] { submit(w.a.handle, [] {}); });
}

/// The stream ends while its point is polled.
void stream_ends() {
  World& w = busy_world();
  together([&] { poll_and_write(w, w.first); }, [&] { retire_slot(&w.a); });
  synchronize(w.a.handle);
  expect_slot(w);
}

/// Another one takes the slot meanwhile.
void slot_is_used_again() {
  World& w = busy_world();
  together([&] { w.second.record(); }, [&] { retire_slot(&w.a); },
           [&] { take_slot_if_free(w), take_slot_if_free(w); });
}

/// Two points of a stream are recorded while it ends.
void two_record() {
  World& w = busy_world();
  together([&] { w.first.record(); }, [&] { static_cast<void>(w.second.poll()); },
           [&] { retire_slot(&w.a); });
  synchronize(w.a.handle);
  expect(poll_and_write(w, w.first) == Progress::complete, "the first one is not complete");
  expect(poll_and_write(w, w.second) == Progress::complete, "the second one is not complete");
  expect_slot(w);
}

/// A host function asks for a number, and other threads record.
void asked() {
  World& w = busy_world();
  together(
      [&] {
        runnel::detail::in_host_function = true;
        w.first.record();
        runnel::detail::in_host_function = false;
        repeat(3, [&] {
          if (w.first.progress() == Progress::complete) *w.number = 2;
          sync::yield();
        });
      },
      [&] { w.second.record(), advance(w.a); }, [&] { mark_if_asked(w.a), advance(w.a); });
  mark_if_asked(w.a);
  synchronize(w.a.handle);
  expect(poll_and_write(w, w.first) == Progress::complete, "one mark was not enough");
}

/// The last answer is asked for after the stream's end.
void end_is_complete(World& w) {
  together([&] { write_in(w), retire_slot(&w.a); },
           [&] {
             repeat(3, [&] {
               static_cast<void>(w.first.ask());
               if (w.first.is_over()) *w.number = 2;
             });
           });
  synchronize(w.a.handle);
  expect(poll_and_write(w, w.first, 1) == Progress::complete, "the end is not complete");
  expect_slot(w);
}

/// Another stream waits for the point, while the point's stream ends.
void make_wait() {
  World& w = busy_world();
  together(
      [&] {
        // While the stream is ending it has no event yet: then nothing can wait for it.
        if (w.first.make_wait(w.b.handle, InCapture::never))
          submit(w.b.handle, [number = w.number] { *number = 2; });
      },
      [&] { retire_slot(&w.a); });
  synchronize(w.b.handle);
}

/// Another thread's own default stream: only that thread can say how far it is.
void marks(World& w) {
  auto& is_written = lasting<Gate>();
  together(
      [&] {
        w.a.thread = runnel::detail::this_thread_id();
        w.a.is_default = true;
        write_in(w);
        is_written.open();
        repeat(2, [&] {
          mark_if_asked(w.a);
          sync::yield();
        });
        synchronize(w.a.handle);
        complete_if_asked(w.a);
      },
      [&] {
        is_written.wait();
        poll_and_write(w, w.first);
      });
}

/// Work that writes host memory is found from before it runs until it has written.
struct Written {
  runnel::detail::HostWriters writers;
  sync::Atomic<bool> is_seen_to_run{false};
  int* source = new int{0};

  void write() {
    is_seen_to_run.store(true, std::memory_order_release);
    *source = 1;
  }
  /// A copy that reads its source at the call.
  void read() {
    if (!is_seen_to_run.load(std::memory_order_acquire)) return;
    if (writers.may_write(source, sizeof *source)) return;
    expect(*source == 1, "a copy reads what work ahead of it has yet to write");
  }
};

void writers_of_any_memory(Written& w) {
  const auto run = [&] {
    w.writers.begin_functions(1);
    w.write();
    w.writers.end_functions(1);
  };
  together(run, [&] { w.read(), w.read(); }, [&] { w.read(); });
}

void writers_of_a_range(Written& w) {
  together(
      [&] {
        const runnel::detail::RangeWriter writer{w.source, sizeof *w.source, w.writers};
        w.write();
      },
      [&] { w.read(), w.read(); },
      [&] { const runnel::detail::RangeWriter other{&w, 1, w.writers}; });
}

}  // namespace

MODEL_CHECKS(CHECK(poll), CHECK(stream_ends), CHECK(slot_is_used_again), CHECK(two_record),
             CHECK(asked), CHECK(end_is_complete), CHECK(make_wait), CHECK(marks),
             CHECK(writers_of_any_memory), CHECK(writers_of_a_range))
