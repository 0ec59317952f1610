// SPDX-License-Identifier: Apache-2.0
/// Stacks to switch between, each with its own copy of the program's thread_local variables.
#pragma once

#include <cstddef>
#include <vector>

namespace model {

struct ThreadEnd {
  void (*call)(void*);
  void* argument;
  ThreadEnd* next;
};

struct Fiber {
  void* stack_pointer = nullptr;
  unsigned char* stack = nullptr;
  unsigned char* locals = nullptr;  // its thread_local variables, while it is not running
  void* caught = nullptr;           // the exceptions that it handles, likewise
  unsigned uncaught = 0;
  ThreadEnd* at_end = nullptr;
};

/// Finds the program's thread_local variables. Once, before any run.
void prepare_fibers();
/// Makes the fiber begin with `entry` when it is first switched to. `entry` never returns.
void reset_fiber(Fiber& fiber, void (*entry)());
void switch_fiber(Fiber& from, Fiber& to);

}  // namespace model
