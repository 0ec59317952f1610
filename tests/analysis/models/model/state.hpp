// SPDX-License-Identifier: Apache-2.0
/// What the files of the checker share: its whole state, which lies outside the program's data,
/// because that is restored before each run.
#pragma once

#include "fiber.hpp"
#include "model.hpp"

#include <array>

namespace model {

template <class All>
decltype(auto) nth(All&& all, int number) {
  return all[static_cast<size_t>(number)];
}

inline constexpr int max_threads = 12;
// stands for the single order of all seq_cst operations
inline constexpr int sc_entry = max_threads;
inline constexpr uint32_t never = ~uint32_t{0};

/// How far a thread's knowledge of each thread goes.
struct Clock {
  std::array<uint32_t, 16> at{};
  void join(const Clock& other) {
    for (size_t i : range(at.size())) at[i] = at[i] > other.at[i] ? at[i] : other.at[i];
  }
};

/// What one thread passes to another by release and acquire.
struct Knowledge {
  Clock happened;  // what happens before the present moment; decides which plain accesses race
  // the same, and what seq_cst fences make visible; decides which values a load may still return
  Clock visible;
  void join(const Knowledge& other) {
    happened.join(other.happened);
    visible.join(other.visible);
  }
};

struct Store {
  uint64_t value;
  // when each thread first wrote or read this value, on its own clock; or never
  std::array<uint32_t, 16> known_since;
  Knowledge released;
  bool is_continued;  // a read-modify-write read this value: nothing comes between the two
};

/// An address with an atomic object, a mutex or a condition variable.
struct Location {
  static constexpr int max_stores = 8;  // older ones are forgotten: no load returns them any more
  uintptr_t address;
  uint32_t run;
  uint32_t number;
  int count;
  std::array<Store, max_stores> stores;  // in modification order
  // how many loads of each thread have returned an old value, one after the other
  std::array<uint8_t, 16> stale;
  int owner;  // of a mutex; -1: nobody
  Knowledge unlocked;
};

enum class Status : uint8_t { ready, yielded, sleeping, blocked, waiting, finished };

struct Thread {
  Fiber fiber;
  Status status;
  bool timed, timed_out;
  bool calm;
  bool begins;            // it has not come to its first operation
  const void* waits_for;  // an object, or a Thread to join
  TimePoint until;
  std::chrono::nanoseconds processor;
  int priority;
  Knowledge knows;
  Knowledge pending;  // of relaxed loads, for an acquire fence
  Knowledge fenced;   // at the last release fence
  void (*call)(void*);
  void* argument;
  uint32_t& epoch(int self) { return nth(knows.happened.at, self); }
};

/// One byte's last plain accesses.
struct Cell {
  uint32_t run;
  uint32_t written;
  std::array<uint32_t, 2> read;
  uint32_t where;  // of the last write, from the program's start
  uint8_t writer;
  std::array<uint8_t, 2> reader;
  bool freed;
};

struct Operation {
  uintptr_t where;
  uint64_t value;
  const char* name;
  uint32_t location;
  uint8_t thread, order, age, size;
};

enum class Way : uint8_t { exhaustive, priorities, uniform, sticky };

inline constexpr uint8_t any_count = 255;  // of choices that are repeated from a text
struct Choice {
  uint8_t count, chosen;
};

struct State {
  // Of the run.
  uint32_t run = 0;
  bool in_run = false;
  int threads = 0;
  int current = -1;
  uint64_t steps = 0;
  TimePoint time{};
  uint32_t sc_time = 0;
  Clock sc;  // what seq_cst fences have made visible to each other
  int preemptions = 0;
  // time-outs while others could run, spurious wake-ups, spurious failures of a weak exchange
  int surprises = 0;
  const char* failure = nullptr;
  char reason[400];
  struct Access {
    int thread;
    uintptr_t where;
  };
  std::array<Access, 2> blamed;  // of a race: the last write, and the access that was found
  char outcome[32];
  int outcome_length = 0;
  size_t traced = 0;
  size_t allocated = 0;
  uint32_t locations = 0;

  // How schedules are chosen.
  Way way = Way::uniform;
  uint64_t random = 1;
  int bound = 0;
  std::array<uint64_t, 3> lowered_at{};
  int lowest = 0;
  std::vector<Choice>* choices = nullptr;  // of an exhaustive run
  size_t taken = 0;
  const Check* check = nullptr;

  Fiber host;
  std::array<Thread, max_threads> all{};
};

inline constexpr size_t arena_bytes = size_t{32} << 20;
inline constexpr size_t max_locations = 4096;
inline constexpr size_t max_operations = 1 << 16;
inline constexpr uint64_t max_steps = 20000;
inline constexpr int max_surprises = 2;
// then threads take turns: what still goes on for ever is a livelock
inline constexpr uint64_t fair_from = 4000;
inline constexpr auto step_time = std::chrono::microseconds{20};

extern State* state;
extern Location* locations;
extern Operation* trace;
extern unsigned char* arena;

inline Thread& self() { return nth(state->all, state->current); }

// scheduler.cpp
uint64_t random_below(uint64_t count);
/// One of `count` possibilities; the first is the usual one, which random runs take in all but one
/// of `rarity` cases.
int choose(int count, unsigned rarity);
/// A point where another thread may continue.
void point();
void end_run();
void start_first(void (*call)(void*), void* argument);

// memory.cpp
Location& location_of(const void* at);
uint64_t newest_value(const void* at, unsigned size);
void trace_operation(const char* name, const Location& location, uint64_t value, Order order,
                     int age, const void* where);
/// Ends what the present operation is; the thread's later plain accesses happen after it.
void advance();

// runtime.cpp
void prepare_memory();
void forget_memory();
void call_at_thread_end();
void check_access(const void* at, size_t bytes, bool writes, const void* where);
/// An atomic access: its object was made before, and is not destroyed.
void check_atomic(const void* at, const void* where);

#define MODEL_CALLER __builtin_return_address(0)

}  // namespace model
