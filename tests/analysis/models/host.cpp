// SPDX-License-Identifier: Apache-2.0
/// Checks of the host backend: queues, engine, monitor, events, default streams. The tasks touch
/// plain data, so that every missing order is a race, which the checker reports.
#include "state.hpp"
#include "support.hpp"

namespace {

using namespace checks;
using runnel::host::prepare;
using runnel::host::TaskQueue;
using runnel::host::TaskQueuePtr;
namespace backend = runnel::backend;
namespace native = runnel::native;
using model::expect;

struct World {
  World() {
    const model::Calm calm;
    prepare(*a);
  }
  TaskQueuePtr a = std::make_shared<TaskQueue>(0), b = std::make_shared<TaskQueue>(0),
               c = std::make_shared<TaskQueue>(0);
  Gate first, second;
  int data[4] = {};
};

void wait_for(const TaskQueuePtr& queue, uint64_t number) {
  queue->wait_until(number, false);
  expect(queue->completed() >= number, "a wait returned too early");
}

/// Two threads submit to one queue, which comes to rest and starts again in between.
void submit_and_rest(World& w) {
  const auto submit = [&](int& own) {
    for (int i : range(2))
      w.a->submit([&own, &all = w.data[0], i] {
        expect(own == i, "the tasks of one thread are out of order");
        ++own, ++all;
      });
  };
  together([&] { submit(w.data[1]); }, [&] { submit(w.data[2]); });
  wait_for(w.a, 4);
  expect(w.data[0] == 4, "a task was lost or ran twice");
}

/// A thread waits for the end of what it submits, again and again: the queue rests, and its worker
/// may sleep.
void submit_and_wait(World& w) {
  for (uint64_t i = 1; i <= 3; ++i) {
    w.a->submit([&] { ++w.data[0]; });
    w.a->wait_until(i, i == 2);
    expect(w.data[0] == static_cast<int>(i), "a wait returned before the task was complete");
  }
}

/// Threads wait for different numbers of one queue, while its tasks complete.
void wait_and_wake(World& w) {
  const auto wait = [&](uint64_t number) {
    wait_for(w.a, number);
    expect(w.data[number] == 1, "the task's writes are not visible");
  };
  together([&] { wait(1); }, [&] { wait(2); },
           [&] {
             w.a->submit([&] { w.data[1] = 1; });
             w.a->submit([&] { w.data[2] = 1; });
           });
}

/// Two queues wait for different tasks of a third one, which runs meanwhile.
void park_behind(World& w) {
  w.a->submit([&] { w.data[0] = 1; });
  together([&] { w.a->submit([&] { w.data[1] = 1; }); },
           [&] {
             w.b->submit_wait({w.a, 1});
             w.b->submit([&] { expect(w.data[0] == 1, "a queue did not wait for another"); });
             wait_for(w.b, w.b->submitted());
           });
  w.c->submit_wait({w.a, 2});
  w.c->submit([&] { expect(w.data[1] == 1, "a queue did not wait for another"); });
  wait_for(w.c, w.c->submitted());
}

/// Queues that wait for each other's tasks in turn.
void park_in_turn(World& w) {
  const auto add = [&] { ++w.data[0]; };
  w.a->submit(add);
  w.b->submit_wait({w.a, 1});
  w.b->submit(add);
  w.a->submit_wait({w.b, w.b->submitted()});
  w.a->submit(add);
  wait_for(w.a, w.a->submitted());
  expect(w.data[0] == 3, "a task was lost");
}

/// Both cores are in use by tasks that wait for a queue which was put back. Only the monitor can
/// find a core for it.
void put_back(World& w) {
  w.a->submit([&] { w.first.wait(); });
  w.a->submit([&] { w.second.open(); });
  w.b->submit([&] { w.second.wait(); });
  w.c->submit([&] {
    w.first.open();
    w.second.wait();
  });
  for (const TaskQueuePtr& queue : {w.a, w.b, w.c}) wait_for(queue, queue->submitted());
}

/// More queues than cores, and an urgent one among them.
void share_cores(World& w) {
  auto urgent = std::make_shared<TaskQueue>(runnel::host::greatest_priority);
  const auto add = [](int& number) { return [&number] { ++number; }; };
  together([&] { w.a->submit(add(w.data[0])), w.a->submit(add(w.data[0])); },
           [&] { w.b->submit(add(w.data[1])), urgent->submit(add(w.data[3])); });
  w.c->submit(add(w.data[2]));
  for (const TaskQueuePtr& queue : {w.a, w.b, w.c, urgent}) wait_for(queue, queue->submitted());
  expect(w.data[0] == 2 && w.data[1] == 1 && w.data[2] == 1 && w.data[3] == 1,
         "a task was lost or ran twice");
}

/// Four workers are idle, two more than there are cores: one that times out ends, perhaps just as a
/// queue is handed to it.
void retire(World& w) {
  const TaskQueuePtr queues[] = {w.a, w.b, w.c, std::make_shared<TaskQueue>(0)};
  auto& started = lasting<sync::Atomic<int>>();
  {
    const model::Calm calm;
    for (const TaskQueuePtr& queue : queues)
      queue->submit([&] {
        started.fetch_add(1);
        w.first.wait();
      });
    while (started.load() < 4) sync::sleep_for(std::chrono::milliseconds{1});
    w.first.open();
    for (const TaskQueuePtr& queue : queues) wait_for(queue, 1);
  }
  together([&] { w.a->submit([&] { w.data[0] = 1; }); },
           [&] { w.b->submit([&] { w.data[1] = 1; }); });
  wait_for(w.a, 2);
  wait_for(w.b, 2);
  expect(w.data[0] == 1 && w.data[1] == 1, "a task was lost");
}

/// The block of tasks is full: the next submission needs another one, and the worker frees the old
/// one.
void change_block(World& w) {
  {
    const model::Calm calm;
    for (size_t i = 0; i + 1 < runnel::host::TaskBlock::size; ++i) w.a->submit([] {});
    wait_for(w.a, w.a->submitted());
  }
  const auto submit = [&] { w.a->submit([&] { ++w.data[0]; }); };
  together([&] { submit(), submit(); }, submit);
  wait_for(w.a, runnel::host::TaskBlock::size + 2);
  expect(w.data[0] == 3, "a task was lost or ran twice");
}

// Streams and events, through the functions of the backend interface.

void require(backend::status s) { expect(s == backend::ok, "a function of the backend failed"); }
native::stream make_stream(bool blocking = false) {
  native::stream stream{};
  require(backend::stream_create(stream, blocking, 0));
  return stream;
}
void launch(native::stream stream, int& number) {
  require(backend::launch_host_func(stream, [](void* at) { ++*static_cast<int*>(at); }, &number));
}

struct Events {
  Events() {
    const model::Calm calm;
    a = make_stream(), b = make_stream();
    require(backend::event_create(plain, {}));
    require(backend::event_create(timed,
                                  {.timed = true, .blocking_wait = false, .interprocess = false}));
  }
  native::stream a{}, b{};
  native::event plain{}, timed{};
  int data[2] = {};
  sync::Atomic<bool> recorded{false};
};

/// One thread records and records again. Others query, wait, and let a stream wait: for one record
/// or the other.
void record_and_wait(Events& e) {
  together(
      [&] {
        launch(e.a, e.data[0]);
        require(backend::event_record(e.plain, e.a));
        e.recorded.store(true, std::memory_order_release);
        launch(e.a, e.data[1]);
        require(backend::event_record(e.plain, e.a));
      },
      [&] {
        if (!e.recorded.load(std::memory_order_acquire)) return;
        require(backend::stream_wait_event(e.b, e.plain));
        require(backend::launch_host_func(
            e.b,
            [](void* at) {
              expect(*static_cast<int*>(at) == 1, "a stream did not wait for an event");
            },
            &e.data[0]));
      },
      [&] {
        if (!e.recorded.load(std::memory_order_acquire)) return;
        if (backend::event_query(e.plain) != backend::ok)
          require(backend::event_synchronize(e.plain));
        expect(e.data[0] == 1, "an event happened before the work in front of its first record");
      });
  require(backend::event_synchronize(e.plain));
  expect(e.data[1] == 1, "an event happened before its work");
  require(backend::stream_synchronize(e.b));
}

/// Two threads record one event. Whichever record stays, the event is of that one, with its time.
void record_twice(Events& e) {
  together([&] { require(backend::event_record(e.timed, e.a)); },
           [&] { require(backend::event_record(e.timed, e.b)); },
           [&] {
             float milliseconds = -1;
             // one read may see each record
             const backend::status s = backend::event_elapsed(milliseconds, e.timed, e.timed);
             expect(s == backend::ok || milliseconds == -1.0F,
                    "a time was given although there is none");
           });
  require(backend::event_synchronize(e.timed));
  float milliseconds = -1;
  require(backend::event_elapsed(milliseconds, e.timed, e.timed));
  expect(milliseconds == 0.0F, "an event's time is not its own");
}

/// The work of the default stream and that of a blocking stream never run at once.
void default_stream(Events& e) {
  native::stream blocking{};
  {
    const model::Calm calm;
    blocking = make_stream(true);
    launch(nullptr, e.data[0]);
  }
  together([&] { launch(nullptr, e.data[0]); },
           [&] { launch(blocking, e.data[0]), launch(blocking, e.data[0]); });
  require(backend::stream_synchronize(nullptr));
  require(backend::stream_synchronize(blocking));
  expect(e.data[0] == 4, "a task was lost");
}

}  // namespace

MODEL_CHECKS(CHECK(submit_and_rest), CHECK(submit_and_wait), CHECK(wait_and_wake),
             CHECK(park_behind), CHECK(park_in_turn), CHECK(put_back), CHECK(share_cores),
             CHECK(retire), CHECK(change_block), CHECK(record_and_wait), CHECK(record_twice),
             CHECK(default_stream))
