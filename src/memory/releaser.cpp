// SPDX-License-Identifier: Apache-2.0
#include "memory/releaser.hpp"

#include "base/announce.hpp"
#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/start_thread.hpp"
#include "base/sync.hpp"
#include "base/try_flag.hpp"
#include "capture/open_captures.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/point.hpp"
#include "slot/reclaimer.hpp"
#include "slot/slots.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

/// How long release_and_wait() waits for a moment at which the devices are idle.
constexpr auto idle_timeout = 1s;

bool is_busy(const backend::status s) noexcept {
  return !succeeded_or_forget(s) && backend::is_not_ready(s);
}

/// Whether a release would not have to wait for streams that the library knows; other code may have
/// more. A stream that other code captures has no work. The default stream is busy as long as
/// threads' default streams and blocking streams are. Returns false while a capture of the library
/// is open: the capture would break if a stream joined it just before the query of that stream.
bool are_devices_idle() noexcept try {
  const std::unique_lock no_captures = block_captures();
  if (!no_captures) return false;
  // Includes functions of destroyed streams, which cannot be queried.
  if (are_host_functions_under_way()) return false;
  std::array<bool, max_devices> is_used{};
  for (const StreamKey each : live_streams()) {
    const HandleLock stream{each};
    if (!stream) continue;
    is_used[static_cast<size_t>(stream->device)] = true;
    if (is_only_viewed(*each.slot)) continue;
    const StreamQueryLock beside_captures{*each.slot};
    if (stream->is_default || beside_captures.capture_state() != CaptureState::none) continue;
    if (is_busy(internal_call([&] { return beside_captures.query(); }))) return false;
  }
  for (int device = 0; device < max_devices; ++device) {
    if (!is_used[static_cast<size_t>(device)]) continue;
    const ScopedDevice on{device, ScopedDevice::no_throw};
    // A query would break a capture.
    if (capture_state(backend::default_stream()) == CaptureState::unknown) return false;
    if (is_busy(internal_call([] { return backend::stream_query(backend::default_stream()); })))
      return false;
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

/// One thread blocks operations at a time: of two, the first that ends would unblock them.
constinit sync::Atomic<bool> is_blocking{false};

/// Calls `release()` unless a device is busy. It first blocks new operations. Operations that have
/// begun get a millisecond to finish, so that the release need not wait for their work; work that
/// may wait for the program is not enqueued any more.
template <class F>
[[nodiscard]] bool do_if_idle(F release) noexcept {
  if (!backend::frees_wait_for_devices()) return release(), true;
  const TryFlag is_alone{is_blocking};
  if (!is_alone || !are_devices_idle()) return false;
  bool is_idle = false;
  {
    const BlockOperations blocked;
    sync::sleep_for(1ms);
    is_idle = !is_blocking_enqueue_in_progress() && are_devices_idle();
    if (is_idle) release();
  }
  if (!is_idle)
    sync::sleep_for(5ms);  // Lets the blocked operations continue before the next attempt.
  return is_idle;
}

class Releaser {
 public:
  /// Returns false if no thread can be started.
  [[nodiscard]] bool try_add(Deferred& queued) noexcept {
    sync::happens_before(&queued);
    const std::lock_guard lock{mutex_};
    if (!started_ && !start_thread([this] { work(); })) return false;
    static constinit ExitHook at_exit{[]() noexcept { never_destroyed<Releaser>().stop(); }};
    if (!std::exchange(started_, true)) call_at_exit(at_exit);
    queue_.push(queued);
    added_.fetch_add(1, std::memory_order_relaxed);
    changed_.notify_one();
    return true;
  }
  [[nodiscard]] uint64_t added() const noexcept { return added_.load(std::memory_order_relaxed); }
  uint64_t done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Stops the thread from making runtime calls. It first waits as long as the pending calls take
  /// on idle devices. A call may also wait for a device for an unlimited time; the exit of the
  /// process then continues without it.
  void stop() noexcept {
    try_for(200ms, [this] { return done() == added(); });
    stopped_.store(true, std::memory_order_seq_cst);
    try_for(10ms, [this] { return !calling_.load(std::memory_order_seq_cst); });
  }

 private:
  /// Null if the list is empty.
  [[nodiscard]] Deferred* take() noexcept {
    const std::lock_guard lock{mutex_};
    return queue_.pop();
  }
  void work() noexcept {
    for (;;) {
      {
        std::unique_lock lock{mutex_};
        // After stop() for ever: the process exits.
        changed_.wait(lock, [this] {
          return queue_.size() > 0 && !stopped_.load(std::memory_order_seq_cst);
        });
      }
      block_until([this] { return try_release(); });
    }
  }
  /// Returns false if the devices are busy. After stop() it releases nothing.
  [[nodiscard]] bool try_release() noexcept {
    calling_.store(true, std::memory_order_seq_cst);
    const bool is_over =
        stopped_.load(std::memory_order_seq_cst) || do_if_idle([this] { release_all(); });
    calling_.store(false, std::memory_order_seq_cst);
    return is_over;
  }
  /// Processes the list, for at most 20 ms, because other threads are blocked meanwhile.
  void release_all() noexcept {
    const auto end = sync::Clock::now() + 20ms;
    while (sync::Clock::now() < end && !stopped_.load(std::memory_order_seq_cst)) {
      Deferred* const queued = take();
      if (queued == nullptr) return;
      sync::happens_after(queued);
      queued->run(*queued);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  sync::Mutex mutex_;  // Guards the queue and `started_`.
  sync::ConditionVariable changed_;
  DeferredQueue queue_;
  bool started_ = false;
  sync::Atomic<uint64_t> added_{0};
  sync::Atomic<uint64_t> done_{0};
  sync::Atomic<bool> calling_{false};  // The thread may be making runtime calls.
  sync::Atomic<bool> stopped_{false};  // The process exits.
};
Releaser& releaser() noexcept { return never_destroyed<Releaser>(); }

void make(const MemoryRelease& release) noexcept {
  call_quietly(release.device, [&] { return release.call(release.memory); });
}

}  // namespace

void release_on_thread(Deferred& object) noexcept {
  if (release_mode_before_wait() == Release::never || releaser().try_add(object)) return;
  run_or_defer(object);
}

void release_on_thread(const MemoryRelease& release) noexcept try {
  if (release_mode_before_wait() == Release::never) return;
  auto* const later = new MemoryRelease{release};
  later->run = [](Deferred& own) noexcept {
    const std::unique_ptr<MemoryRelease> owned{static_cast<MemoryRelease*>(&own)};
    make(*owned);
  };
  release_on_thread(*static_cast<Deferred*>(later));
} catch (const std::bad_alloc&) {
  if (!in_host_function) make(release);
}

void release_and_wait(const char* operation, const MemoryRelease& release, int device) noexcept {
  if (in_host_function || is_service_thread()) return release_on_thread(release);
  if (release_mode_before_wait() == Release::never) return;
  const auto try_release = [&] { return do_if_idle([&] { make(release); }); };
  const ScopedWait wait{operation, {.device = device}};
  // While the runtime waits, it also blocks other threads, so that streams which wait for those
  // threads would never become idle. Hence the wait for idle devices comes first. If the streams of
  // a program are never idle, the release is made anyway, and the runtime waits.
  const auto deadline = sync::Clock::now() + idle_timeout;
  if (!poll_until(deadline, try_release)) make(release);
}

bool are_releases_pending() noexcept { return releaser().done() != releaser().added(); }

void wait_for_releases(const char* operation, std::chrono::nanoseconds at_most) noexcept {
  const uint64_t awaited = releaser().added();
  if (releaser().done() >= awaited) return;
  const ScopedWait wait{operation};
  try_for(at_most, [awaited] { return releaser().done() >= awaited; });
}

void wait_after_trim(const char* operation) noexcept {
  if (!is_service_thread()) wait_for_releases(operation, short_timeout);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
