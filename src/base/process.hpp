// SPDX-License-Identifier: Apache-2.0
/// Whether the runtime may be called now. This depends on the phase of the process, and on the
/// calling thread.
#pragma once

#include "base/not_copied.hpp"
#include "base/sync.hpp"

#include <runnel/native.hpp>

#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

/// Why the next operation must take the slow path; 0 if it need not.
inline constexpr unsigned slow_path_phase = 1;  // first use, a forked child, or exit
// This is a forked child. Always set together with slow_path_phase.
inline constexpr unsigned slow_path_forked = 4;
// An observer wants OperationKind::entered.
inline constexpr unsigned slow_path_observer = 8;
// Captures are open, which work on a default stream may invalidate.
inline constexpr unsigned slow_path_captures = 16;
// A release of memory needs idle devices, so new operations block.
inline constexpr unsigned slow_path_release = 32;
extern constinit sync::Atomic<unsigned> slow_path_reasons;
/// The calling thread runs a host function.
extern thread_local constinit bool in_host_function;
/// The calling thread runs the user's hook or report handler.
extern thread_local constinit bool in_hook;

/// The slow path of enter(): first use, fork, exit, or inside a host function.
void enter_slowly(const char* operation);

/// Each operation that calls the runtime begins with this.
/// @throws if the runtime must not be called now
inline void enter(const char* operation) {
  if (slow_path_reasons.load(std::memory_order_relaxed) != 0 || in_host_function) [[unlikely]]
    enter_slowly(operation);
}

/// Whether this is a forked child of a process that had used the runtime. The library must take no
/// lock there, because a thread that does not exist in the child may own it. Destructors check
/// this; other functions call enter() or refuse_in_child() before they take a lock.
inline bool is_forked_child() noexcept {
  return (slow_path_reasons.load(std::memory_order_relaxed) & slow_path_forked) != 0;
}
[[noreturn]] void throw_forked(const char* operation);
/// For functions that take a lock but do not reach the runtime. @throws errc::forked
inline void refuse_in_child(const char* operation) {
  if (is_forked_child()) [[unlikely]]
    throw_forked(operation);
}

/// In this scope, operations that other threads begin block in enter(). Operations that have begun
/// continue.
class BlockOperations : NotCopied {
 public:
  BlockOperations() noexcept;
  ~BlockOperations();
};

/// The scope of a runtime call that enqueues work which may wait for the program: a host function,
/// a graph with host functions, a wait for a value. A release that waited for such work while it
/// blocks operations could block the thread that the work waits for: a deadlock. So such a call
/// waits until operations are not blocked. A thread that blocks operations checks
/// is_blocking_enqueue_in_progress() before it looks at the streams, so that it sees all work that
/// was enqueued.
class BlockingEnqueue : NotCopied {
 public:
  BlockingEnqueue() noexcept;
  ~BlockingEnqueue();
};
bool is_blocking_enqueue_in_progress() noexcept;

/// When a destructor may call the runtime. `later`: not now, because this is a host function.
/// `never`: in a forked child, while the process exits, and before first use.
enum class Release { now, later, never };
/// The slow path of release_mode(): first use, fork, exit, or inside a host function.
[[nodiscard]] Release release_mode_slowly() noexcept;
[[nodiscard]] inline Release release_mode() noexcept {
  return slow_path_reasons.load(std::memory_order_relaxed) == 0 && !in_host_function
             ? Release::now
             : release_mode_slowly();
}

/// As release_mode(), for destructors that may block: also detects that exit() is running this
/// destructor, on any thread. The library's own atexit handler runs too late to detect that: exit()
/// destroys first the static objects that were made after the library's first use. Walks the stack,
/// which takes microseconds.
[[nodiscard]] Release release_mode_before_wait() noexcept;

/// A function to call when the process begins to exit, on the exiting thread.
struct ExitHook {
  void (*call)() noexcept;
  ExitHook* next = nullptr;
  sync::Atomic<bool> is_added{false};
};
/// Does nothing for an object that was added already. Requires: the object is never destroyed.
void call_at_exit(ExitHook& hook) noexcept;
/// Sets the function to call in a forked child of a process that had used the runtime. A second
/// call replaces the first function.
void call_in_forked_child(void (*hook)() noexcept) noexcept;

/// Installs a sentinel that detects the end of the main thread, which comes before static objects
/// are destroyed. From then on the runtime is not called. Called wherever native objects are
/// created. Does nothing on other threads.
void watch_main_thread();

}  // namespace runnel::inline RUNNEL_ABI::detail
