// SPDX-License-Identifier: Apache-2.0
/// Threads that look after communicators: one that looks for operations which take too long, and one for each call that may hang.
#include "comm/ccl_state.hpp"

#include "base/immortal.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "comm/devices.hpp"

#include <runnel/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

struct CclProcess {
  sync::Mutex lock;  // guards the following members, up to `calling`
  sync::ConditionVariable wake;
  std::vector<CclState*> states;
  std::vector<Watched> watched;
  bool is_started = false;
  bool is_exit_watched = false;

  sync::Mutex calling;  // held by the watching thread while it calls the runtime
  sync::Atomic<bool> is_over{false};
  sync::Atomic<int> busy{0};  // threads that destroy or abort
};
CclProcess& process() { return immortal<CclProcess>(); }

/// The process exits. A call that hangs is left behind.
void stop() noexcept {
  process().is_over = true;
  const std::lock_guard lock{process().calling};
  static_cast<void>(poll_until(sync::Clock::now() + 100ms, [] { return process().busy == 0; }));
}

/// Runs `call()` on a thread of its own, unless the process exits. False if there is no thread.
template <class F>
[[nodiscard]] bool run_in_background(F call) noexcept try {
  sync::Thread{[call = std::move(call)]() mutable {
    const RelaxedCapture relaxed;
    ++process().busy;
    if (!process().is_over) call();
    --process().busy;
  }}.detach();
  return true;
} catch (const std::exception&) {
  return false;
}

[[nodiscard]] std::vector<std::shared_ptr<CclState>> living() {
  std::vector<std::shared_ptr<CclState>> found;
  const std::lock_guard lock{process().lock};
  for (CclState* const each : process().states)
    if (auto state = std::static_pointer_cast<CclState>(each->weak_from_this().lock())) found.push_back(std::move(state));
  return found;
}

/// In one group: an abort alone waits for operations of the others.
void abort_all(const std::vector<std::shared_ptr<CclState>>& broken) noexcept {
  static_cast<void>(ccl::group_start());
  for (const auto& each : broken) {
    // A thread that is in a call of the library leaves it soon, or only because of the abort.
    std::unique_lock lock{each->calls, std::defer_lock};
    static_cast<void>(poll_until(sync::Clock::now() + 20ms, [&] { return lock.try_lock(); }));
    if (const ccl::Handle handle = each->ccl_communicator.exchange(nullptr)) static_cast<void>(ccl::abort(handle));
  }
  static_cast<void>(ccl::group_end());
}

/// Whether the event has happened. True also for a device that is lost, which runs nothing any more.
[[nodiscard]] bool has_happened(const Event& event) noexcept try { return event.query(); } catch (const std::exception&) {
  return true;
}

/// Whether nothing more has to be done for the operation.
[[nodiscard]] bool is_settled(Watched& watched) noexcept {
  CclState& state = *watched.state;
  if (state.is_broken() || has_happened(watched.end)) return true;
  try {
    state.look_for_errors();
    const auto now = sync::Clock::now();
    if (!watched.since && has_happened(watched.begin)) watched.since = now;
    if (!watched.since || now < *watched.since + state.options.timeout) return state.is_broken();
    const std::string time = std::to_string(state.options.timeout.count());
    fail_all(state, errc::timed_out, watched.operation, "another process did not take part within the timeout of " + time + " ms");
  } catch (const std::exception&) {  // no memory for the words
    fail_all(state, errc::timed_out, watched.operation, {});
  }
  return true;
}

void watch() noexcept {
  const RelaxedCapture relaxed;
  std::vector<Watched> own;
  while (!process().is_over) {
    {
      std::unique_lock lock{process().lock};
      process().wake.wait(lock, [&] { return !own.empty() || !process().watched.empty(); });
      std::move(process().watched.begin(), process().watched.end(), std::back_inserter(own));
      process().watched.clear();
    }
    {
      const std::lock_guard lock{process().calling};
      if (process().is_over) return;
      std::erase_if(own, [](Watched& each) { return is_settled(each); });
    }
    sync::sleep_for(1ms);
  }
}

/// Requires: the lock is held.
void watch_exit() {
  if (!std::exchange(process().is_exit_watched, true)) call_at_exit([]() noexcept { stop(); });
}

}  // namespace

std::optional<Watched> begin_watch(CclState& state, StreamRef stream, const char* operation) {
  if (state.options.timeout.count() == 0) return std::nullopt;
  Watched made{state.self(), operation};
  stream.record_event(made.begin);
  return made;
}

void end_watch(std::optional<Watched> watched, StreamRef stream) {
  if (!watched) return;
  stream.record_event(watched->end);
  const std::lock_guard lock{process().lock};
  process().watched.push_back(std::move(*watched));
  if (!process().is_started) {
    try {
      sync::Thread{watch}.detach();
    } catch (const std::system_error&) {
      process().watched.pop_back();
      throw_error(errc::out_of_memory, watched->operation, "the system has no thread to watch for the timeout");
    }
    process().is_started = true;
  }
  process().wake.notify_one();
}

void enlist(CclState& state) {
  const std::lock_guard lock{process().lock};
  watch_exit();
  process().states.push_back(&state);
}

void delist(CclState& state) noexcept {
  const std::lock_guard lock{process().lock};
  std::erase(process().states, &state);
}

void fail_all(CclState& state, errc code, const char* operation, const std::string& reason) noexcept try {
  if (!state.fail(code, operation, reason)) return;
  auto all = living();
  for (const auto& each : all)
    if (each.get() != &state)
      each->fail(errc::communicator_broken, "use a communicator", "another communicator failed, and all of the process were aborted");
  abort_in_background(std::move(all));
} catch (const std::bad_alloc&) {
  if (state.break_with(code, operation, {})) state.end_operations();
}

void abort_in_background(std::vector<std::shared_ptr<CclState>> broken) noexcept try {
  const auto shared = std::make_shared<std::vector<std::shared_ptr<CclState>>>(std::move(broken));
  if (!run_in_background([shared] { abort_all(*shared); })) abort_all(*shared);
} catch (const std::bad_alloc&) {
  abort_all(broken);
}

void destroy_in_background(ccl::Handle communicator, Device device, std::shared_ptr<Baton> own_baton,
                           DeviceBuffer<std::uint32_t> number) noexcept {
  static_cast<void>(run_in_background([communicator, device, own_baton, number = std::move(number)]() mutable {
    Baton& baton = own_baton != nullptr ? *own_baton : communicating_device(device.ordinal()).baton;
    const auto is_idle = [&] {
      try {
        return process().is_over || baton.is_idle();
      } catch (const std::exception&) {  // a device that is lost runs nothing any more
        return true;
      }
    };
    while (!poll_until(sync::Clock::now() + 1s, is_idle)) {
    }
    if (process().is_over) return;
    static_cast<void>(ccl::destroy(communicator));
  }));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
