// SPDX-License-Identifier: Apache-2.0
/// The memory model: which values a load may return, and what happens before what.
#include "state.hpp"

#include <algorithm>

namespace model {
namespace {

bool has(Order order, bool acquires) {
  if (order == Order::acq_rel || order == Order::seq_cst) return true;
  return acquires ? order == Order::acquire || order == Order::consume : order == Order::release;
}
bool acquires(Order order) { return has(order, true); }
bool releases(Order order) { return has(order, false); }

// By type, because a copy of any size would be a call of memcpy, whose accesses are watched.
template <class T>
void copy_as(void* to, const void* from) {
  __builtin_memcpy(to, from, sizeof(T));
}
void copy_value(void* to, const void* from, unsigned size) {
  if (size == 1) return copy_as<uint8_t>(to, from);
  if (size == 2) return copy_as<std::uint16_t>(to, from);
  if (size == 4) return copy_as<uint32_t>(to, from);
  copy_as<uint64_t>(to, from);
}

uint64_t read_memory(const void* at, unsigned size) {
  uint64_t value = 0;
  copy_value(&value, at, size);
  return value;
}
void write_memory(void* at, unsigned size, uint64_t value) { copy_value(at, &value, size); }

/// The location with at least its initial value, which every thread knows.
Location& value_of(const void* at, unsigned size) {
  Location& location = location_of(at);
  if (location.count > 0) return location;
  Store& first = location.stores[0];
  first.value = read_memory(at, size);
  first.known_since.fill(0);
  first.released = {};
  first.is_continued = false;
  location.count = 1;
  return location;
}

/// What decides how far back an operation may reach.
Clock horizon(Order order) {
  Clock known = self().knows.visible;
  if (order == Order::seq_cst) {
    known.join(state->sc);
    known.at[sc_entry] = never - 1;
  }
  return known;
}

bool is_known(const Store& store, const Clock& known) {
  for (size_t i : range(known.at.size()))
    if (store.known_since[i] <= known.at[i]) return true;
  return false;
}

/// The oldest store that a load may return.
int oldest(const Location& location, const Clock& known) {
  int index = location.count - 1;
  while (index > 0 && !is_known(nth(location.stores, index), known)) --index;
  return index;
}

void note(Store& store, Order order) {
  const auto me = static_cast<size_t>(state->current);
  store.known_since[me] = std::min(store.known_since[me], self().epoch(state->current));
  if (order == Order::seq_cst)
    store.known_since[sc_entry] = std::min(store.known_since[sc_entry], ++state->sc_time);
}

void take(const Store& store, Order order) {
  if (acquires(order))
    self().knows.join(store.released);
  else
    self().pending.join(store.released);
}

Store make_store(uint64_t value, Order order) {
  Store store;
  store.value = value;
  store.known_since.fill(never);
  store.released = releases(order) ? self().knows : self().fenced;
  store.is_continued = false;
  return store;
}

/// Puts the store at `index` of the modification order; returns where it is then.
int insert(Location& location, int index, const Store& store) {
  if (location.count == Location::max_stores) {
    for (int i = 1; i < location.count; ++i) nth(location.stores, i - 1) = nth(location.stores, i);
    --location.count;
    --index;
    location.stores[0].known_since.fill(0);  // the oldest that is left is what everybody may see
  }
  for (int i = location.count; i > index; --i)
    nth(location.stores, i) = nth(location.stores, i - 1);
  ++location.count;
  nth(location.stores, index) = store;
  return index;
}

Store& newest(Location& location) { return nth(location.stores, location.count - 1); }

/// How many stores back a load reads. A thread that keeps asking sees the newest value in the end.
int choose_age(Location& location, Order order) {
  uint8_t& stale = nth(location.stale, state->current);
  const int possible = location.count - oldest(location, horizon(order));
  const int age = possible > 1 && stale < 3 && !self().calm ? choose(possible, 2) : 0;
  stale = age > 0 ? static_cast<uint8_t>(stale + 1) : uint8_t{0};
  return age;
}

/// Where a store goes in the modification order: usually to the end, else before stores that do not
/// happen before it.
int choose_place(const Location& location, Order order) {
  const int first = oldest(location, horizon(order)) + 1;
  std::array<int, Location::max_stores + 1> places{};
  int count = 0;
  for (int place = location.count; place >= first; --place)
    if (place == location.count || !nth(location.stores, place - 1).is_continued)
      nth(places, count++) = place;
  return nth(places, count > 1 && !self().calm ? choose(count, 8) : 0);
}

uint64_t change(Location& location, void* at, unsigned size, uint64_t value, Order order) {
  Store& before = newest(location);
  note(before, order);
  take(before, order);
  before.is_continued = true;
  Store after = make_store(value, order);
  after.released.join(before.released);
  const uint64_t old = before.value;
  insert(location, location.count, after);
  note(newest(location), order);
  nth(location.stale, state->current) = 0;
  write_memory(at, size, value);
  return old;
}

}  // namespace

void advance() {
  const auto me = static_cast<size_t>(state->current);
  ++self().knows.happened.at[me];
  ++self().knows.visible.at[me];
}

void trace_operation(const char* name, const Location& location, uint64_t value, Order order,
                     int age, const void* where) {
  if (state->traced == max_operations) return;
  Operation& operation = trace[state->traced++];
  operation.where = reinterpret_cast<uintptr_t>(where);
  operation.value = value;
  operation.name = name;
  operation.location = location.number;
  operation.thread = static_cast<uint8_t>(state->current);
  operation.order = static_cast<uint8_t>(order);
  operation.age = static_cast<uint8_t>(age);
}

Location& location_of(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  size_t place = (address >> 2) * 0x9E3779B97F4A7C15u >> 52;
  static_assert(max_locations == 1 << 12);
  while (locations[place].run == state->run && locations[place].address != address)
    place = (place + 1) % max_locations;
  Location& location = locations[place];
  if (location.run != state->run) {
    if (state->locations + 1 == max_locations) fail("the run has too many objects for the checker");
    location.address = address;
    location.run = state->run;
    location.number = ++state->locations;
    location.count = 0;
    location.stale.fill(0);
    location.owner = -1;
    location.unlocked = {};
  }
  return location;
}

uint64_t newest_value(const void* at, unsigned size) { return read_memory(at, size); }

void begin_life(const void* at) {
  if (!state->in_run) return;
  Location& location = location_of(at);
  location.count = 0;
  location.owner = -1;
  location.unlocked = {};
}

uint64_t load(const void* at, unsigned size, Order order) {
  if (!state->in_run) return read_memory(at, size);
  point();
  check_atomic(at, MODEL_CALLER);
  Location& location = value_of(at, size);
  const int age = choose_age(location, order);
  Store& found = nth(location.stores, location.count - 1 - age);
  note(found, order);
  take(found, order);
  trace_operation("load", location, found.value, order, age, MODEL_CALLER);
  advance();
  return found.value;
}

void store(void* at, unsigned size, uint64_t value, Order order) {
  if (!state->in_run) return write_memory(at, size, value);
  point();
  check_atomic(at, MODEL_CALLER);
  Location& location = value_of(at, size);
  const int place = choose_place(location, order);
  const int age = location.count - place;
  const int index = insert(location, place, make_store(value, order));
  note(nth(location.stores, index), order);
  if (age == 0) write_memory(at, size, value);
  trace_operation("store", location, value, order, age, MODEL_CALLER);
  advance();
}

uint64_t read_modify_write(void* at, unsigned size, Change how, uint64_t operand, Order order,
                           bool is_count) {
  if (!state->in_run) {
    const uint64_t old = read_memory(at, size);
    write_memory(at, size, how(old, operand));
    return old;
  }
  if (!is_count) point();
  check_atomic(at, MODEL_CALLER);
  Location& location = value_of(at, size);
  const uint64_t value = how(newest(location).value, operand);
  const uint64_t old = change(location, at, size, value, order);
  trace_operation("change", location, value, order, 0, MODEL_CALLER);
  advance();
  return old;
}

bool compare_exchange(void* at, unsigned size, uint64_t& expected, uint64_t value, Order order,
                      Order failure, bool weak) {
  if (!state->in_run) {
    const uint64_t found = read_memory(at, size);
    if (found == expected) write_memory(at, size, value);
    return found == expected || (expected = found, false);
  }
  point();
  check_atomic(at, MODEL_CALLER);
  Location& location = value_of(at, size);
  const int age = choose_age(location, failure);
  Store& found = nth(location.stores, location.count - 1 - age);
  const bool fails = found.value != expected;
  // An old value that equals the expected one is none to fail with, nor to change: then the newest
  // is taken.
  const bool fits = !fails && newest(location).value == expected;
  const bool is_spurious =
      fits && weak && !self().calm && state->surprises < max_surprises && choose(2, 32) == 1;
  if (is_spurious) ++state->surprises;
  if (fits && !is_spurious) {
    change(location, at, size, value, order);
    trace_operation("changed", location, value, order, 0, MODEL_CALLER);
    advance();
    return true;
  }
  Store& read = fails ? found : newest(location);
  note(read, failure);
  take(read, failure);
  expected = read.value;
  trace_operation("kept", location, read.value, failure, fails ? age : 0, MODEL_CALLER);
  advance();
  return false;
}

void fence(Order order) {
  point();
  Thread& me = self();
  if (acquires(order)) me.knows.join(me.pending);
  if (order == Order::seq_cst) {
    state->sc.join(me.knows.visible);
    state->sc.at[sc_entry] = ++state->sc_time;
    me.knows.visible.join(state->sc);
  }
  if (releases(order)) me.fenced = me.knows;
  trace_operation("fence", location_of(state), 0, order, 0, MODEL_CALLER);
  advance();
}

}  // namespace model
