// SPDX-License-Identifier: Apache-2.0
/// Whether the runtime may be called now, which depends on the phase of the process and on the
/// calling thread.
#pragma once

#include "base/sync.hpp"

#include <runnel/native.hpp>

#include <atomic>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// Why the next operation must take the slow path; 0 if it need not.
inline constexpr unsigned attention_phase = 1;    // first use, a forked child, or exit
inline constexpr unsigned attention_backlog = 2;  // objects wait to be destroyed
// this is a forked child; set together with attention_phase
inline constexpr unsigned attention_forked = 4;
// an observer wants to know which operations begin
inline constexpr unsigned attention_entered = 8;
// captures are open, which work on a default stream may break
inline constexpr unsigned attention_captures = 16;
// memory is given back, for which the devices must stay idle
inline constexpr unsigned attention_release = 32;
extern constinit sync::Atomic<unsigned> attention;
/// True while the calling thread runs a host function.
extern thread_local constinit bool in_host_function;
/// True while the calling thread is in the program's hook, or in its handler of reports.
extern thread_local constinit bool in_hook;

/// The slow path of enter(): first use, fork, exit, backlog, or inside a host function.
void enter_slowly(const char* operation);

/// Every operation that reaches the runtime begins with this. @throws if the runtime must not be
/// called now
inline void enter(const char* operation) {
  if (attention.load(std::memory_order_relaxed) != 0 || in_host_function) [[unlikely]]
    enter_slowly(operation);
}

/// Whether this is a forked child of a process that had used the runtime. The library must take no
/// lock there: a thread that does not exist in the child may hold it. Destructors ask this; other
/// functions call enter() or refuse_in_child() before they take a lock.
[[nodiscard]] inline bool is_forked_child() noexcept {
  return (attention.load(std::memory_order_relaxed) & attention_forked) != 0;
}
[[noreturn]] void throw_forked(const char* operation);
/// For functions that take a lock but do not reach the runtime. @throws errc::forked
inline void refuse_in_child(const char* operation) {
  if (is_forked_child()) [[unlikely]]
    throw_forked(operation);
}

/// While an object lives, operations that other threads begin wait in enter(). Operations that have
/// begun go on.
class OperationsHeld {
 public:
  OperationsHeld() noexcept;
  OperationsHeld(const OperationsHeld&) = delete;
  OperationsHeld& operator=(const OperationsHeld&) = delete;
  ~OperationsHeld();
};

/// Around a runtime call that enqueues work which may wait for the program: a host function, a
/// graph with some, a wait for a value. While a release waits for such work it would hold the
/// thread that the work waits for, for ever. So such a call waits while operations are held; and
/// who holds operations asks is_blocking_work_being_enqueued() before it looks at the streams: what
/// is enqueued is seen there.
class BlockingWork {
 public:
  BlockingWork() noexcept;
  BlockingWork(const BlockingWork&) = delete;
  BlockingWork& operator=(const BlockingWork&) = delete;
  ~BlockingWork();
};
[[nodiscard]] bool is_blocking_work_being_enqueued() noexcept;

/// When a destructor may call the runtime. `later`: this is a host function, which must not call
/// it. `never`: in a forked child, while the process exits, and before first use.
enum class Release { now, later, never };
/// The slow path of release_mode(): first use, fork, exit, backlog, or inside a host function.
[[nodiscard]] Release release_mode_slowly() noexcept;
[[nodiscard]] inline Release release_mode() noexcept {
  return attention.load(std::memory_order_relaxed) == 0 && !in_host_function
             ? Release::now
             : release_mode_slowly();
}

/// A native object that may have to wait for its destruction until the runtime may be called.
struct Postponed {
  // destroys the object; the runtime may be called then
  void (*release)(const Postponed&) noexcept;
  void* handle;
  int device;
  std::uint64_t id = 0;
};
void postpone(Postponed item) noexcept;
/// Calls `item.release` now, later or never, according to release_mode().
void release(const Postponed& item) noexcept;

/// Adds a function to call where the process begins to exit, on the thread that exits. Requires:
/// there are at most five.
void call_at_exit(void (*hook)() noexcept) noexcept;
/// Sets the function to call in a forked child of a process that had used the runtime. There is
/// one: a second call replaces the first.
void call_in_forked_child(void (*hook)() noexcept) noexcept;

/// Installs a sentinel that detects the main thread's end, which comes before static objects are
/// destroyed: from then on the runtime is not called. Called wherever native objects are created.
/// Does nothing on other threads.
void watch_main_thread();

}  // namespace runnel::inline RUNNEL_ABI::detail
