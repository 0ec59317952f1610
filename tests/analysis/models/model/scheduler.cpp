// SPDX-License-Identifier: Apache-2.0
/// Which thread goes on, and everything that blocks.
#include "state.hpp"

#include <algorithm>
#include <cstring>

namespace model {
namespace {

Thread& thread(int number) { return nth(state->all, number); }

/// One way to go on.
struct Option {
  enum class What : uint8_t { run, time_out, wake } what;
  int thread;
};
struct Options {
  std::array<Option, 3 * max_threads> usual, other;
  int usual_count = 0, other_count = 0;
  bool keeps_current = false;  // the first of the usual ones is the current thread
  void add_usual(int number) { nth(usual, usual_count++) = {Option::What::run, number}; }
  void add_other(Option::What what, int number) { nth(other, other_count++) = {what, number}; }
};

/// `usual`: threads that are ready. `other`: what only time brings about, and what may happen at
/// any time but rarely does.
Options find_options() {
  Options options;
  for (int i : range(state->threads))
    if (thread(i).status == Status::sleeping && thread(i).until <= state->time)
      thread(i).status = Status::ready;
  if (self().status == Status::ready) {
    options.add_usual(state->current);
    options.keeps_current = true;
  }
  const bool surprises = state->surprises < max_surprises && state->bound < 1000;
  for (int i : range(state->threads)) {
    const Thread& each = thread(i);
    if (each.status == Status::ready && i != state->current) options.add_usual(i);
    if (each.status == Status::yielded || each.status == Status::sleeping)
      options.add_other(Option::What::run, i);
    if (each.status == Status::waiting && surprises) {
      if (each.timed) options.add_other(Option::What::time_out, i);
      options.add_other(Option::What::wake, i);
    }
  }
  return options;
}

/// Nobody is ready, but for threads that yielded or sleep. False if there are none of these either.
bool let_time_pass(Options& options) {
  for (int i : range(state->threads)) {
    const Status status = thread(i).status;
    if (status == Status::yielded || status == Status::sleeping) options.add_usual(i);
  }
  return options.usual_count > 0;
}

/// Nobody can go on without a time-out.
bool let_time_out(Options& options) {
  if (!state->check->needs_time_outs) return false;
  for (int i : range(state->threads))
    if (thread(i).status == Status::waiting && thread(i).timed)
      nth(options.usual, options.usual_count++) = {Option::What::time_out, i};
  return options.usual_count > 0;
}

[[noreturn]] void fail_stuck() {
  bool has_timed = false;
  for (int i : range(state->threads))
    has_timed = has_timed || (thread(i).status == Status::waiting && thread(i).timed);
  fail(has_timed ? "no thread can go on before a time-out: a wake-up was lost"
                 : "no thread can go on: a wake-up was lost, or a deadlock");
}

Option pick_by_priority(const Options& options) {
  for (uint64_t& at : state->lowered_at)
    if (at == state->steps) self().priority = --state->lowest;
  Option best = options.usual[0];
  for (int i = 1; i < options.usual_count; ++i)
    if (const Option each = nth(options.usual, i);
        thread(each.thread).priority > thread(best.thread).priority)
      best = each;
  for (int i : range(options.other_count))
    if (const Option each = nth(options.other, i);
        each.what == Option::What::run &&
        thread(each.thread).priority > thread(best.thread).priority)
      best = each;
  return best;
}

Option pick_randomly(const Options& options) {
  if (options.other_count > 0 && random_below(state->way == Way::sticky ? 32 : 12) == 0)
    return options.other[random_below(static_cast<uint64_t>(options.other_count))];
  if (state->way == Way::priorities && state->steps < fair_from) return pick_by_priority(options);
  if (options.keeps_current && state->way == Way::sticky && random_below(6) != 0)
    return options.usual[0];
  return options.usual[random_below(static_cast<uint64_t>(options.usual_count))];
}

Option pick_exhaustively(const Options& options) {
  const bool may_preempt = state->preemptions < state->bound;
  int count = options.keeps_current && !may_preempt ? 1 : options.usual_count;
  if (may_preempt && state->bound < 1000) count += options.other_count;
  const int chosen = choose(count, 1);
  if (chosen > 0 && (options.keeps_current || chosen >= options.usual_count)) ++state->preemptions;
  return chosen < options.usual_count ? nth(options.usual, chosen)
                                      : nth(options.other, chosen - options.usual_count);
}

void switch_to(int next) {
  const int before = state->current;
  if (before == next) return;
  state->current = next;
  switch_fiber(thread(before).fiber, thread(next).fiber);
}

/// Prepares the thread that was picked.
void take_option(Option option) {
  Thread& next = thread(option.thread);
  if (option.what != Option::What::run) {
    if (self().status != Status::finished) ++state->surprises;
    next.timed_out = option.what == Option::What::time_out;
    if (next.timed_out) state->time = std::max(state->time, next.until);
  }
  if (next.status == Status::sleeping) state->time = std::max(state->time, next.until);
  const bool goes_on = option.thread == state->current && next.status == Status::ready;
  next.status = Status::ready;
  // Who yielded has let others go first.
  if (!goes_on)
    for (int i : range(state->threads))
      if (i != state->current && thread(i).status == Status::yielded)
        thread(i).status = Status::ready;
}

/// Lets a thread go on: another one, unless the current one is ready.
void go_on() {
  if (++state->steps > max_steps) fail("the threads go on for ever without an end: a livelock");
  Options options = find_options();
  if (options.usual_count == 0) {
    options.other_count = 0;
    if (!let_time_pass(options) && !let_time_out(options)) fail_stuck();
  }
  Option next = options.usual[0];
  if (!(self().calm && options.keeps_current)) {
    if (self().calm) options.other_count = 0;
    next = state->way == Way::exhaustive ? pick_exhaustively(options) : pick_randomly(options);
  }
  take_option(next);
  switch_to(next.thread);
}

void block(Status status, const void* on) {
  self().status = status;
  self().waits_for = on;
  go_on();
}

void make_ready(Status status, const void* on) {
  for (int i : range(state->threads))
    if (thread(i).status == status && thread(i).waits_for == on) thread(i).status = Status::ready;
}

/// Wakes one of those that wait, any of them, or all.
void wake(const void* on, bool all) {
  std::array<int, max_threads> waiting{};
  int count = 0;
  for (int i : range(state->threads))
    if (thread(i).status == Status::waiting && thread(i).waits_for == on) nth(waiting, count++) = i;
  if (count == 0) return;
  if (!all) {
    thread(nth(waiting, choose(count, 2))).status = Status::ready;
    return;
  }
  for (int i : range(count)) thread(nth(waiting, i)).status = Status::ready;
}

void run_thread() {
  Thread& me = self();
  me.call(me.argument);
  call_at_thread_end();
  advance();
  me.status = Status::finished;
  make_ready(Status::blocked, &me);
  if (state->current == 0) end_run();
  go_on();
  __builtin_unreachable();
}

int make_thread(void (*call)(void*), void* argument) {
  if (state->threads == max_threads) fail("the run has too many threads for the checker");
  const int number = state->threads++;
  Thread& fresh = thread(number);
  fresh.status = Status::ready;
  fresh.timed = fresh.timed_out = fresh.calm = false;
  fresh.begins = true;
  fresh.processor = {};
  fresh.priority = static_cast<int>(random_below(1000)) + 1000;
  fresh.knows = fresh.pending = fresh.fenced = {};
  if (number > 0) fresh.knows = self().knows;
  nth(fresh.knows.happened.at, number) = nth(fresh.knows.visible.at, number) = 1;
  fresh.call = call;
  fresh.argument = argument;
  reset_fiber(fresh.fiber, run_thread);
  return number;
}

}  // namespace

uint64_t random_below(uint64_t count) {
  uint64_t z = state->random += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (z ^ z >> 31) % count;
}

int choose(int count, unsigned rarity) {
  if (count <= 1) return 0;
  if (state->way != Way::exhaustive) {
    if (random_below(rarity) != 0) return 0;
    return static_cast<int>(random_below(static_cast<uint64_t>(count)));
  }
  if (state->choices->size() == state->choices->capacity())
    fail("the run has too many choices for the checker");
  if (state->taken == state->choices->size())
    state->choices->push_back({static_cast<uint8_t>(count), 0});
  const Choice choice = (*state->choices)[state->taken++];
  // Otherwise the check depends on something that is not part of the run.
  if (choice.chosen >= count || (choice.count != count && choice.count != any_count))
    fail("the same choices have led elsewhere this time");
  return choice.chosen;
}

void point() {
  state->time += step_time;
  self().processor += step_time;
  if (self().begins)
    self().begins = false;  // it was picked for this operation
  else
    go_on();
}

void fail(const char* reason) {
  std::strncpy(state->reason, reason, sizeof state->reason - 1);
  state->failure = state->reason;
  end_run();
  __builtin_unreachable();
}

void outcome(int digit) {
  if (state->outcome_length + 1 < static_cast<int>(sizeof state->outcome))
    state->outcome[state->outcome_length++] = static_cast<char>('0' + digit);
}

Calm::Calm() { self().calm = true; }
Calm::~Calm() { self().calm = false; }

int any_of(int count) {
  if (count <= 1) return 0;
  return state->way == Way::exhaustive
             ? choose(count, 1)
             : static_cast<int>(random_below(static_cast<uint64_t>(count)));
}

void start_first(void (*call)(void*), void* argument) {
  state->current = make_thread(call, argument);
  state->in_run = true;
  switch_fiber(state->host, thread(state->current).fiber);
}

void end_run() {
  state->in_run = false;
  switch_fiber(self().fiber, state->host);
}

int start_thread(void (*call)(void*), void* argument) {
  point();
  const int number = make_thread(call, argument);
  trace_operation("start", location_of(&thread(number)), static_cast<uint64_t>(number),
                  Order::relaxed, 0, MODEL_CALLER);
  advance();
  return number;
}

void join_thread(int number) {
  while (thread(number).status != Status::finished) block(Status::blocked, &thread(number));
  self().knows.join(thread(number).knows);
  trace_operation("join", location_of(&thread(number)), static_cast<uint64_t>(number),
                  Order::relaxed, 0, MODEL_CALLER);
}

std::chrono::nanoseconds processor_time(int number) { return thread(number).processor; }

void yield() {
  if (!state->in_run) return;
  state->time += step_time;
  self().processor += step_time;
  self().begins = false;
  self().priority = --state->lowest;
  self().status = Status::yielded;
  go_on();
}

void sleep_until(TimePoint until) {
  self().until = until;
  self().priority = --state->lowest;
  self().status = Status::sleeping;
  go_on();
}

TimePoint now() { return state->time; }

void lock(void* mutex) {
  point();
  check_atomic(mutex, MODEL_CALLER);
  Location& location = location_of(mutex);
  if (location.owner == state->current) fail("a thread locks a mutex that it holds");
  while (location.owner >= 0) block(Status::blocked, mutex);
  location.owner = state->current;
  self().knows.join(location.unlocked);
  trace_operation("lock", location, 0, Order::acquire, 0, MODEL_CALLER);
  advance();
}

bool try_lock(void* mutex) {
  point();
  check_atomic(mutex, MODEL_CALLER);
  Location& location = location_of(mutex);
  if (location.owner >= 0) return false;
  location.owner = state->current;
  self().knows.join(location.unlocked);
  trace_operation("lock", location, 0, Order::acquire, 0, MODEL_CALLER);
  advance();
  return true;
}

namespace {
void release_mutex(void* mutex) {
  Location& location = location_of(mutex);
  if (location.owner != state->current) fail("a thread unlocks a mutex that it does not hold");
  location.owner = -1;
  location.unlocked = self().knows;
  make_ready(Status::blocked, mutex);
}
}  // namespace

void unlock(void* mutex) {
  check_atomic(mutex, MODEL_CALLER);
  release_mutex(mutex);
  trace_operation("unlock", location_of(mutex), 0, Order::release, 0, MODEL_CALLER);
  advance();
}

bool wait_condition(void* condition, void* mutex, TimePoint until) {
  point();
  Thread& me = self();
  trace_operation("sleep", location_of(condition), 0, Order::relaxed, 0, MODEL_CALLER);
  release_mutex(mutex);
  advance();
  me.timed = until != TimePoint::max();
  me.timed_out = false;
  me.until = until;
  block(Status::waiting, condition);
  const bool timed_out = me.timed_out;
  trace_operation(timed_out ? "time-out" : "woken", location_of(condition), 0, Order::relaxed, 0,
                  MODEL_CALLER);
  Location& location = location_of(mutex);
  while (location.owner >= 0) block(Status::blocked, mutex);
  location.owner = state->current;
  me.knows.join(location.unlocked);
  advance();
  return !timed_out;
}

void notify_condition(void* condition, bool all) {
  point();
  check_atomic(condition, MODEL_CALLER);
  trace_operation(all ? "notify all" : "notify", location_of(condition), 0, Order::relaxed, 0,
                  MODEL_CALLER);
  wake(condition, all);
}

void wait(const void* at, unsigned size, uint64_t old, Order order) {
  while (load(at, size, order) == old) {
    if (newest_value(at, size) != old) continue;  // which is what the system compares
    self().timed = false;
    trace_operation("sleep", location_of(at), old, Order::relaxed, 0, MODEL_CALLER);
    block(Status::waiting, at);
    trace_operation("woken", location_of(at), old, Order::relaxed, 0, MODEL_CALLER);
  }
}

void notify(const void* at, bool all) {
  point();
  trace_operation(all ? "notify all" : "notify", location_of(at), 0, Order::relaxed, 0,
                  MODEL_CALLER);
  wake(at, all);
}

}  // namespace model
