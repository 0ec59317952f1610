// SPDX-License-Identifier: Apache-2.0
/// A model checker for C++ threads. It runs a short program again and again in one thread of the
/// system: the program's threads are fibers, and every atomic operation is a point where another
/// one may continue. An atomic load returns any value that the C++ memory model allows there, not
/// only the newest. README.md says what is explored, and what is not.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "../../../support/loops.hpp"

namespace model {

using std::size_t, std::uint32_t, std::uint64_t, std::uint8_t, std::uintptr_t;
using test_support::range;
using Order = std::memory_order;

// What checks use.

/// Ends the run as failed. The explorer prints the reason and the run's operations.
[[noreturn]] void fail(const char* reason);
inline void expect(bool holds, const char* otherwise) {
  if (!holds) fail(otherwise);
}
/// Adds a digit to the run's outcome, for checks that list their outcomes.
void outcome(int digit);
/// While an object of this type lives, threads are switched only where one blocks, every load is of
/// the newest value, and nothing is spurious: for a preparation that is not to be explored.
class Calm {
 public:
  Calm();
  Calm(const Calm&) = delete;
  Calm& operator=(const Calm&) = delete;
  ~Calm();
};
/// Lets `thread` end up later: a number below `count`, each of which is tried.
int any_of(int count);

struct Check {
  const char* name;
  void (*body)();
  /// If it is not null: the outcomes, with spaces between them, that must all occur, and no other.
  /// Then every schedule is tried.
  const char* outcomes = nullptr;
  /// A thread may have to wait for a time-out although nobody else can run. Otherwise this is a
  /// lost wake-up.
  bool needs_time_outs = false;
};
/// Explores the checks that the arguments name, or all. Returns the exit status.
int explore(int argc, char** argv, const Check* checks, size_t count);

// What the replaced types (sync.hpp) call. Addresses stand for objects. All of this works only
// inside a run.

/// A new object is at the address: what was known of an earlier one there no longer holds.
void begin_life(const void* at);
uint64_t load(const void* at, unsigned size, Order order);
void store(void* at, unsigned size, uint64_t value, Order order);
using Change = uint64_t (*)(uint64_t old, uint64_t operand);
uint64_t read_modify_write(void* at, unsigned size, Change change, uint64_t operand, Order order,
                           bool is_count = false);
bool compare_exchange(void* at, unsigned size, uint64_t& expected, uint64_t value, Order order,
                      Order failure, bool weak);
void fence(Order order);
/// As std::atomic::wait on a futex: returns once the value differs from `old`.
void wait(const void* at, unsigned size, uint64_t old, Order order);
void notify(const void* at, bool all);

void lock(void* mutex);
bool try_lock(void* mutex);
void unlock(void* mutex);
/// Without a deadline, `until` is time_point::max(). False after a time-out.
using TimePoint = std::chrono::steady_clock::time_point;
bool wait_condition(void* condition, void* mutex, TimePoint until);
void notify_condition(void* condition, bool all);

int start_thread(void (*call)(void*), void* argument);
void join_thread(int thread);
std::chrono::nanoseconds processor_time(int thread);
void yield();
void sleep_until(TimePoint until);
TimePoint now();

}  // namespace model
