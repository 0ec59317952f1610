// SPDX-License-Identifier: Apache-2.0
#include "memory/releaser.hpp"

#include "base/announce.hpp"
#include "base/counters.hpp"
#include "base/exit_notice.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "stream/capture.hpp"
#include "stream/graph_functions.hpp"
#include "stream/open_captures.hpp"
#include "stream/slots.hpp"
#include "stream/stream_point.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <system_error>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

/// How long a caller who has to wait for a release looks for a moment at which the devices are
/// idle.
constexpr auto idle_patience = 1s;

[[nodiscard]] bool is_busy(const backend::status s) noexcept {
  if (s != backend::ok) backend::forget_error(s);
  return s != backend::ok && backend::is_not_ready(s);
}

/// Whether a release would not wait, as far as the library knows: other code may have streams of
/// its own. A stream that other code captures has no work. The default stream is busy as long as
/// threads' default streams and blocking ones are. False while a capture of the library is open: it
/// would break if a stream joined it just before that stream is queried.
[[nodiscard]] bool are_devices_idle() noexcept try {
  const std::unique_lock no_new_ones = block_new_captures();
  if (are_captures_open()) return false;
  // also those of streams that have ended, which nobody can query
  if (are_functions_under_way()) return false;
  std::array<bool, max_devices> is_used{};
  for (const LiveStream& each : live_streams()) {
    const HandleLock stream{{each.slot, each.id}};
    if (!stream) continue;
    is_used[static_cast<std::size_t>(stream.device())] = true;
    if (stream.is_default() || capture_state(stream.handle()) != CaptureState::none) continue;
    if (is_busy(internal_call([&] { return backend::stream_query(stream.handle()); })))
      return false;
  }
  for (int device = 0; device < max_devices; ++device) {
    if (!is_used[static_cast<std::size_t>(device)]) continue;
    const ScopedDevice on{device, ScopedDevice::no_throw};
    // the question would break a capture
    if (capture_state(backend::default_stream()) == CaptureState::unknown) return false;
    if (is_busy(internal_call([] { return backend::stream_query(backend::default_stream()); })))
      return false;
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

struct HoldingThread {
  sync::Mutex mutex;
};

/// Calls `release()` unless a device is busy. No new operation begins before that. One that has
/// begun already has a millisecond, so that the release need not wait for its work; work that may
/// wait for the program cannot come any more.
template <class F>
[[nodiscard]] bool do_if_idle(F release) noexcept {
  if (!backend::frees_wait_for_devices()) return release(), true;
  // One thread at a time: the first of two that ends would let operations go on.
  const std::unique_lock alone{never_destroyed<HoldingThread>().mutex, std::try_to_lock};
  if (!alone.owns_lock()) return false;
  if (!are_devices_idle()) return false;
  bool is_idle = false;
  {
    const BlockOperations blocked;
    sync::sleep_for(1ms);
    is_idle = !is_blocking_enqueue_in_progress() && are_devices_idle();
    if (is_idle) release();
  }
  if (!is_idle) sync::sleep_for(5ms);  // what was held goes on before the next attempt
  return is_idle;
}

class Releaser {
 public:
  /// False if the system has no thread.
  [[nodiscard]] bool try_add(LateRelease& late) noexcept {
    sync::happens_before(&late);
    const std::lock_guard lock{mutex_};
    if (!started_ && !start()) return false;
    late.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &late;
    last_ = &late;
    added_.fetch_add(1, std::memory_order_relaxed);
    changed_.notify_one();
    return true;
  }
  [[nodiscard]] std::uint64_t added() const noexcept {
    return added_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t done() const noexcept {
    return done_.load(std::memory_order_acquire);
  }
  /// From now on the thread begins no runtime call. First it gets the time that the calls take on
  /// idle devices. A call may also wait for a device, and so for ever: the exit goes on then.
  void stop() noexcept {
    try_for(200ms, [this] { return done() == added(); });
    stopped_.store(true, std::memory_order_seq_cst);
    try_for(10ms, [this] { return !calling_.load(std::memory_order_seq_cst); });
  }

 private:
  [[nodiscard]] bool start() noexcept {
    try {
      sync::Thread{[this] { work(); }}.detach();
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
    call_at_exit([]() noexcept { never_destroyed<Releaser>().stop(); });
    return started_ = true;
  }
  void wait_for_items() noexcept {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return first_ != nullptr; });
  }
  /// Null if the list is empty.
  [[nodiscard]] LateRelease* take() noexcept {
    const std::lock_guard lock{mutex_};
    LateRelease* const taken = first_;
    if (taken != nullptr) first_ = taken->next;
    return taken;
  }
  void work() noexcept {
    for (;;) {
      wait_for_items();
      block_until([this] { return try_release(); });
    }
  }
  /// False if the devices are busy. After stop() nothing is released.
  [[nodiscard]] bool try_release() noexcept {
    calling_.store(true, std::memory_order_seq_cst);
    const bool is_over =
        stopped_.load(std::memory_order_seq_cst) || do_if_idle([this] { release_all(); });
    calling_.store(false, std::memory_order_seq_cst);
    return is_over;
  }
  /// Releases what there is, but other threads are held for a short time only.
  void release_all() noexcept {
    const auto end = sync::Clock::now() + 20ms;
    while (sync::Clock::now() < end && !stopped_.load(std::memory_order_seq_cst)) {
      LateRelease* const late = take();
      if (late == nullptr) return;
      sync::happens_after(late);
      const Postponed item = late->item;
      item.release(item);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  sync::Mutex mutex_;  // guards the list and the start
  sync::ConditionVariable changed_;
  LateRelease* first_ = nullptr;
  LateRelease* last_ = nullptr;
  bool started_ = false;
  sync::Atomic<std::uint64_t> added_{0};
  sync::Atomic<std::uint64_t> done_{0};
  sync::Atomic<bool> calling_{false};  // the thread makes runtime calls
  sync::Atomic<bool> stopped_{false};  // the process exits
};
Releaser& releaser() noexcept { return never_destroyed<Releaser>(); }

/// A release with a place of its own in the list.
struct OwnRelease {
  LateRelease late;
  Postponed item;
};
void run_own(const Postponed& outer) noexcept {
  auto* const own = static_cast<OwnRelease*>(outer.handle);
  const Postponed item = own->item;
  delete own;
  item.release(item);
}

}  // namespace

void release_on_thread(LateRelease& late) noexcept {
  if (release_mode_of_wait() == Release::never || releaser().try_add(late)) return;
  const Postponed item = late.item;
  release(item);
}

void release_on_thread(const Postponed& item) noexcept {
  if (release_mode_of_wait() == Release::never) return;
  OwnRelease* own = nullptr;
  try {
    own = new OwnRelease{{}, item};
  } catch (const std::bad_alloc&) {
    return release(item);
  }
  own->late.item = {run_own, own, item.device};
  release_on_thread(own->late);
}

void release_and_wait(const char* operation, const Postponed& item, int device) noexcept {
  if (in_host_function) return release_on_thread(item);
  if (release_mode_of_wait() == Release::never) return;
  const ScopedWait wait{operation, {.device = device}};
  // While the runtime waits it holds other threads, too, so that streams which wait for them would
  // never be idle. In a program whose streams are never idle, the runtime has to end the wait.
  const auto deadline = sync::Clock::now() + idle_patience;
  if (!poll_until(deadline, [&] { return do_if_idle([&] { item.release(item); }); }))
    item.release(item);
}

bool are_releases_waiting() noexcept { return releaser().done() != releaser().added(); }

void wait_for_releases(const char* operation, std::chrono::nanoseconds at_most) noexcept {
  const std::uint64_t awaited = releaser().added();
  if (releaser().done() >= awaited) return;
  const ScopedWait wait{operation};
  try_for(at_most, [awaited] { return releaser().done() >= awaited; });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
