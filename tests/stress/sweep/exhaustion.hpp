// SPDX-License-Identifier: Apache-2.0
/// Makes the library's allocations or thread starts fail, as SWEEP_EXHAUST says:
/// `what=memory;call=17;form=once`. `what` is memory or threads. `form` is once, or lasting: then
/// this call and all later ones fail until recover(). Counted are the calls that the library makes,
/// on any thread: operator new, aligned_alloc and pthread_create, also through the C++ library.
/// Those of the program itself and of a stand-in runtime are neither counted nor failed.
#pragma once

#include <cstddef>

namespace sweep::exhaustion {

struct View {
  long allocations;    ///< how many the library has made
  long threads;        ///< how many it has started, or tried to start
  int faults;          ///< how many of these calls failed
  bool lasts;          ///< a lasting fault has begun, and recover() was not called
  const char* where;   ///< the place in the library that made the first failed call, as file and
                       ///< offset; "" before the fault
  std::size_t blocks;  ///< blocks from operator new that the library has made and that are alive
};

/// Begins to count. Call this first in main().
void begin();
/// Whether a fault is planned.
bool is_planned() noexcept;
View view() noexcept;
/// Ends a lasting fault.
void recover() noexcept;
/// Plans one more fault, of the call that is `distance` calls of the planned kind away; 1 is the
/// next one.
void plan_again(long distance) noexcept;
/// How many calls of the planned kind were made.
long calls() noexcept;

/// While this lives, calls on the calling thread are not counted, and do not fail: the checks use
/// the library, too.
class Pause {
 public:
  Pause() noexcept;
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
  ~Pause();
};

}  // namespace sweep::exhaustion
