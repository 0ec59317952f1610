// SPDX-License-Identifier: Apache-2.0
/// Checks of the nodes of an event: one thread records it, others ask and wait. What was recorded
/// before a question began is complete after a "yes"; a reference means one record, whatever is
/// recorded later; and each native event comes back to the pool once.
#include "timeline/event_node.hpp"

#include "device.hpp"

namespace {

using namespace checks;
using model::expect;
using runnel::detail::CurrentNode;
using runnel::detail::EventNode;
using runnel::detail::EventNodes;
using runnel::detail::EventRef;
using runnel::detail::Slot;

constexpr int rounds = 3;

struct World {
  Slot& a = make_slot(1);
  Slot& b = make_slot(2);
  EventNodes event;
  int written[rounds + 1] = {};
  sync::Atomic<int> recorded{0};  // rounds
};

void record(EventNodes& event, const Slot& slot) {
  record_on_node(
      event, 0, [] { return runnel::detail::take_event(0, {}, "record"); },
      [&](EventNode& node) { static_cast<void>(backend::event_record(node.handle, slot.handle)); });
}
/// The work of a round, and its record.
void begin_round(World& w, int round) {
  submit(w.a.handle, [&w, round] { w.written[round] = round; });
  record(w.event, w.a);
  w.recorded.store(round, std::memory_order_release);
}
bool is_complete(native::event event) { return backend::event_query(event) == backend::ok; }
void expect_written(const World& w, int round) {
  for (int i = 1; i <= round; ++i)
    expect(w.written[i] == i, "the work before the record is not complete");
}
EventRef hold(const EventNodes& event) { return CurrentNode{event}.reference(); }
void drop(EventNodes& event) {
  for (auto* place : {&event.first, &event.later})
    static_cast<void>(EventRef::adopt(place->exchange(nullptr, std::memory_order_relaxed)));
}
/// In the end all events are in the pool, each once.
void expect_pool() {
  const int made = expect_all_pooled();
  EventRef all[8];
  for (int i : range(made)) {
    all[i] = runnel::detail::take_event(0, {}, "count");
    for (int j : range(i)) expect(all[j].get() != all[i].get(), "an event came back twice");
  }
  expect(made == events_made.load(std::memory_order_relaxed), "an event was lost");
}

/// The second record takes another node, because a reference is held, and the third one the first
/// node again.
void record_in_rounds(World& w) {
  begin_round(w, 1);
  {
    const EventRef held = hold(w.event);
    begin_round(w, 2);
  }
  begin_round(w, 3);
}

void ask(World& w) {
  together([&] { record_in_rounds(w); },
           [&] {
             repeat(3, [&] {
               const int round = w.recorded.load(std::memory_order_acquire);
               const CurrentNode node{w.event};
               if (node && is_complete(node.get())) expect_written(w, round);
             });
           });
  drop(w.event);
  expect_pool();
}

/// The same with references, while a node that goes back to the pool is recorded for another event,
/// whose stream has nothing to do.
void hold_beside_records(World& w) {
  auto& other = lasting<EventNodes>();
  together([&] { record_in_rounds(w), record(other, w.b); },
           [&] {
             repeat(2, [&] {
               const int round = w.recorded.load(std::memory_order_acquire);
               const EventRef held = hold(w.event);
               if (held && is_complete(held.get())) expect_written(w, round);
             });
           });
  drop(w.event);
  drop(other);
  expect_pool();
}

/// Work behind the second record waits for whoever holds the first one.
void a_reference_means_one_record(World& w) {
  auto& is_held = lasting<Gate>();
  auto& is_over = lasting<Gate>();
  begin_round(w, 1);
  together(
      [&] {
        const EventRef held = hold(w.event);
        is_held.open();
        while (!is_complete(held.get())) sync::yield();
        is_over.open();
      },
      [&] {
        is_held.wait();
        submit(w.a.handle, [&is_over] { is_over.wait(); });
        begin_round(w, 2);
      });
  synchronize(w.a.handle);
  drop(w.event);
  expect_pool();
}

/// Two threads record one event, while another asks.
void two_records(World& w) {
  const auto record_twice = [&](const Slot& slot) {
    record(w.event, slot);
    const EventRef held = hold(w.event);
    record(w.event, slot);
  };
  together([&] { record_twice(w.a); }, [&] { record_twice(w.b); },
           [&] {
             const EventRef held = hold(w.event);
             if (held) static_cast<void>(is_complete(held.get()));
           });
  drop(w.event);
  expect_pool();
}

/// The last two references go at once.
void last_references() {
  EventRef first = runnel::detail::take_event(0, {}, "share");
  EventRef second = first.share();
  together([&] { first = {}; }, [&] { second = {}; });
  expect_pool();
}

}  // namespace

MODEL_CHECKS(CHECK(ask), CHECK(hold_beside_records), CHECK(a_reference_means_one_record),
             CHECK(two_records), CHECK(last_references))
