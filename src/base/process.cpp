// SPDX-License-Identifier: Apache-2.0
#include "base/process.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/push_front.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdlib>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

constinit sync::Atomic<unsigned> slow_path_reasons{slow_path_phase};
thread_local constinit bool in_host_function = false;
thread_local constinit bool in_hook = false;

namespace {

enum class Phase : unsigned char { unused, starting, live, forked, exiting };
constinit sync::Atomic<Phase> phase{Phase::unused};
constinit sync::Atomic<pid_t> starting_process{0};
constinit sync::Atomic<pid_t> exiting_thread{0};
constinit sync::Atomic<void (*)() noexcept> fork_hook{nullptr};
constinit sync::Atomic<ExitHook*> exit_hooks{nullptr};  // the newest first
thread_local constinit bool blocks_operations = false;
constinit sync::Atomic<int> blocking_enqueues{0};  // calls in the scope of a BlockingEnqueue

void set_phase(Phase next) noexcept {
  phase = next;
  if (next == Phase::live)
    slow_path_reasons &= ~slow_path_phase;
  else
    slow_path_reasons |=
        next == Phase::forked ? slow_path_phase | slow_path_forked : slow_path_phase;
}

void begin_exit() noexcept {
  exiting_thread = gettid();
  if (phase != Phase::live) return;
  set_phase(Phase::exiting);
  for (ExitHook* each = exit_hooks; each != nullptr; each = each->next) each->call();
  end_user_accesses();
}

void become_forked_child() noexcept {
  if (phase == Phase::unused) return;
  set_phase(Phase::forked);
  if (const auto call = fork_hook.load()) call();
}

/// Whether exit() has called this function, directly or indirectly.
bool is_called_by_exit() noexcept {
  struct Search {
    void* wanted;
    bool is_found;
  } search{dlsym(RTLD_NEXT, "exit"), false};
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* data) {
        auto& s = *static_cast<Search*>(data);
        // exit() does not return, so its last instruction may be the call.
        const _Unwind_Ptr call = _Unwind_GetIP(frame) - 1;
        s.is_found = s.wanted != nullptr &&
                     _Unwind_FindEnclosingFunction(reinterpret_cast<void*>(call)) == s.wanted;
        return s.is_found ? _URC_NORMAL_STOP : _URC_NO_REASON;
      },
      &search);
  return search.is_found;
}

bool are_operations_blocked() noexcept { return (slow_path_reasons & slow_path_release) != 0; }

/// The first thread registers the handlers; the others wait for it. std::call_once would not do: a
/// child that is forked meanwhile would wait forever.
void start(const char* operation) {
  Phase found = phase;
  // Stored before the phase becomes `starting`. A child that inherits that phase compares process
  // ids, and sees that the starting thread does not exist in it.
  if (found == Phase::unused) starting_process = getpid();
  if (found == Phase::unused && phase.compare_exchange_strong(found, Phase::starting)) {
    start_observers();
    pthread_atfork(nullptr, nullptr, become_forked_child);
    std::atexit(begin_exit);
    set_phase(Phase::live);
  }
  while (phase == Phase::starting) {
    if (starting_process != getpid()) become_forked_child();
    sync::yield();
  }
  refuse_in_child(operation);
  watch_main_thread();
}

}  // namespace

void call_at_exit(ExitHook& hook) noexcept {
  if (!hook.is_added.exchange(true)) push_front(exit_hooks, hook, hook.next);
}
void call_in_forked_child(void (*hook)() noexcept) noexcept { fork_hook = hook; }

void throw_forked(const char* operation) {
  throw_error(errc::forked, operation,
              "this process was forked from one that had used the runtime; use exec, or fork "
              "before first use");
}

BlockOperations::BlockOperations() noexcept {
  blocks_operations = true;
  slow_path_reasons.fetch_or(slow_path_release, std::memory_order_seq_cst);
}
BlockOperations::~BlockOperations() {
  slow_path_reasons &= ~slow_path_release;
  blocks_operations = false;
}

BlockingEnqueue::BlockingEnqueue() noexcept {
  // Either this thread sees that operations are blocked, or the thread that blocks them sees the
  // count.
  for (;;) {
    blocking_enqueues.fetch_add(1, std::memory_order_seq_cst);
    if ((slow_path_reasons.load(std::memory_order_seq_cst) & slow_path_release) == 0 ||
        blocks_operations) [[likely]]
      return;
    blocking_enqueues.fetch_sub(1, std::memory_order_release);
    block_until([] { return !are_operations_blocked(); });
  }
}
BlockingEnqueue::~BlockingEnqueue() { blocking_enqueues.fetch_sub(1, std::memory_order_release); }
bool is_blocking_enqueue_in_progress() noexcept {
  return blocking_enqueues.load(std::memory_order_seq_cst) != 0;
}

void enter_slowly(const char* operation) {
  refuse_in_child(operation);
  if (in_hook)
    throw_error(errc::not_permitted, operation,
                "a hook, or a handler of reports, must not use the library");
  if (in_host_function)
    throw_error(errc::not_permitted, operation,
                "a host function must not use streams, devices or memory of runnel: do it before, "
                "or in a function of on_complete()");
  switch (phase) {
    case Phase::unused:
    case Phase::starting:
      start(operation);
      break;
    case Phase::live:
      if (!blocks_operations) block_until([] { return !are_operations_blocked(); });
      break;
    case Phase::forked:
      throw_forked(operation);
    case Phase::exiting:
      // Other threads may still work while one thread exits. An exception there would turn an
      // orderly exit into an abort.
      if (exiting_thread == gettid())
        throw_error(errc::not_permitted, operation, "the process is exiting");
  }
}

Release release_mode_slowly() noexcept {
  if (phase != Phase::live) return Release::never;
  return in_host_function ? Release::later : Release::now;
}

Release release_mode_before_wait() noexcept {
  if (phase == Phase::live && is_called_by_exit()) begin_exit();
  return release_mode();
}

void watch_main_thread() {
  // The main thread's thread_local objects are destroyed before any static object. No other event
  // shows that exit has begun.
  struct Sentinel {
    ~Sentinel() { begin_exit(); }
    bool armed = true;
  };
  static thread_local constinit bool is_known = false;
  if (std::exchange(is_known, true) || gettid() != getpid()) return;
  thread_local Sentinel sentinel;
  static_cast<void>(sentinel.armed);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
