// SPDX-License-Identifier: Apache-2.0
/// The threads for communicators: one that watches for operations that exceed their timeout, and
/// one for each call that may hang.
#include "base/start_thread.hpp"
#include "comm/ccl_state.hpp"

#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"

#include <runnel/detail/deadline.hpp>
#include <runnel/error.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

struct CclProcess {
  sync::Mutex lock;  // Guards the following members, up to `calling`.
  sync::ConditionVariable wake;
  std::vector<std::weak_ptr<CclState>> states;
  Watch watched;
  bool is_started = false;

  sync::Mutex calling;  // Locked by the watching thread while it calls the runtime.
  sync::Atomic<bool> is_over{false};
  sync::Atomic<int> busy{0};  // The number of threads that destroy or abort.
};
CclProcess& process() { return never_destroyed<CclProcess>(); }

/// When the process exits. Does not wait for a call that hangs.
void stop() noexcept {
  process().is_over = true;
  const std::lock_guard lock{process().calling};
  try_for(100ms, [] { return process().busy == 0; });
}
constinit ExitHook at_exit{stop};

/// Runs `call()` on a thread of its own, unless the process exits. Returns false if no thread can
/// be started.
template <class F>
[[nodiscard]] bool run_in_background(F call) noexcept {
  return start_thread([call = std::move(call)]() mutable {
    ++process().busy;
    if (!process().is_over) internal_call(std::move(call));
    --process().busy;
  });
}

[[nodiscard]] std::vector<std::shared_ptr<CclState>> live_states() {
  std::vector<std::shared_ptr<CclState>> found;
  const std::lock_guard lock{process().lock};
  for (const auto& each : process().states)
    if (auto state = each.lock()) found.push_back(std::move(state));
  return found;
}

/// Aborts all communicators in one group, if the library can begin one: a single abort would wait
/// for operations of the others.
void abort_all(std::span<const std::shared_ptr<CclState>> broken) noexcept {
  const bool is_group = ccl::group_start() == ccl::ok;
  for (const auto& each : broken) {
    // A thread that is in a call of the library returns soon, or only because of the abort.
    std::unique_lock lock{each->calls, std::defer_lock};
    try_for(20ms, [&] { return lock.try_lock(); });
    if (const ccl::Handle handle = each->ccl_communicator.exchange(nullptr))
      static_cast<void>(ccl::abort(handle));
  }
  if (is_group) static_cast<void>(ccl::group_end());
}

/// Calls `f()` again after an error: a transient error does not mean that the work has failed.
template <class F>
[[nodiscard]] bool retry_once(F f) {
  try {
    return f();
  } catch (const Error&) {
    return f();
  }
}
bool is_complete(const Event& event) {
  return retry_once([&] { return event.query(); });
}

/// Whether the operation need not be watched any more. Breaks its communicator if it has failed or
/// takes too long.
bool is_done(WatchedOperation& watched) noexcept {
  CclState& state = *watched.state;
  try {
    if (state.is_broken() || is_complete(watched.end)) return true;
    state.look_for_errors();
    if (!watched.since && is_complete(watched.begin)) watched.since = sync::Clock::now();
    if (!watched.since || !is_late(state.options, *watched.since)) return state.is_broken();
    fail_all(state, errc::timed_out, watched.operation, late_text(state.options).c_str());
  } catch (const std::exception& error) {
    fail_all(state, errc::communicator_broken, watched.operation,
             "nobody knows whether it has ended: ", error.what());
  }
  return true;
}

void watch() noexcept {
  const RelaxedCapture relaxed;
  Watch own;
  while (!process().is_over) {
    {
      std::unique_lock lock{process().lock};
      process().wake.wait(lock, [&] { return !own.empty() || !process().watched.empty(); });
      own.splice(own.end(), process().watched);
    }
    {
      const std::lock_guard lock{process().calling};
      if (process().is_over) return;
      std::erase_if(own, [](WatchedOperation& each) { return is_done(each); });
    }
    sync::sleep_for(1ms);
  }
}

void start_watching(const char* operation) {
  const std::lock_guard lock{process().lock};
  if (process().is_started) return;
  if (!start_thread(watch))
    throw_error(errc::out_of_memory, operation,
                "the system has no thread to watch for the timeout");
  process().is_started = true;
}

}  // namespace

Watch begin_watch(CclState& state, StreamRef stream, const char* operation) {
  Watch made;
  if (state.options.timeout.count() == 0) return made;
  start_watching(operation);
  made.push_back({state.self(), operation});
  stream.record_event(made.front().begin);
  return made;
}

void end_watch(Watch watch, StreamRef stream) {
  if (watch.empty()) return;
  WatchedOperation& own = watch.front();
  try {
    stream.record_event(own.end);
  } catch (const std::exception& error) {
    own.state->break_and_end(errc::communicator_broken, own.operation,
                             "nobody can watch for its end: ", error.what());
    throw;
  }
  const std::lock_guard lock{process().lock};
  process().watched.splice(process().watched.end(), watch);
  process().wake.notify_one();
}

void register_state(const std::shared_ptr<CclState>& state) {
  call_at_exit(at_exit);
  const std::lock_guard lock{process().lock};
  std::erase_if(process().states, [](const auto& each) { return each.expired(); });
  process().states.push_back(state);
}

void fail_all(CclState& state, errc code, const char* operation, const char* reason,
              const char* more) noexcept {
  if (!state.break_with(code, operation, reason, more)) return;
  try {
    const auto all = live_states();
    for (const auto& each : all)
      if (each.get() != &state)
        each->break_with(errc::communicator_broken, "use a communicator",
                         "another communicator failed, and all of the process were aborted");
    abort_in_background(all);
  } catch (const std::bad_alloc&) {
    state.end_operations();
  }
}

void abort_in_background(std::span<const std::shared_ptr<CclState>> broken) noexcept {
  try {
    if (run_in_background([all = std::vector(broken.begin(), broken.end())] { abort_all(all); }))
      return;
  } catch (const std::bad_alloc&) {
  }
  abort_all(broken);
}

std::optional<NewCommunicator> make_within(std::chrono::milliseconds timeout,
                                           std::packaged_task<NewCommunicator()> make) {
  call_at_exit(at_exit);
  // The task must outlive the future if this throws. If a packaged_task is destroyed before it has
  // run, while its future lives, it stores an exception in the future; without memory for that, the
  // program terminates.
  const auto task = std::make_shared<std::packaged_task<NewCommunicator()>>(std::move(make));
  std::future<NewCommunicator> made = task->get_future();
  if (!run_in_background([task] { (*task)(); }))
    throw_error(errc::out_of_memory, making_communicator, "the system has no thread for it");
  const ScopedWait wait{making_communicator};
  if (made.wait_until(deadline_after(timeout)) != std::future_status::ready) return std::nullopt;
  return made.get();
}

void destroy_in_background(std::unique_ptr<CclResources> resources) noexcept {
  CclResources* const all = resources.release();
  static_cast<void>(run_in_background([all] {
    try {
      block_until(
          [&] { return process().is_over || retry_once([&] { return all->order.is_idle(); }); });
    } catch (const std::exception&) {  // The runtime cannot report whether operations are running.
      return;
    }
    if (process().is_over) return;
    static_cast<void>(ccl::destroy(all->communicator));
    delete all;
  }));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
