// SPDX-License-Identifier: Apache-2.0
#include "memory/releaser.hpp"

#include "base/announce.hpp"
#include "base/exit_notice.hpp"
#include "base/hang_report.hpp"
#include "base/immortal.hpp"
#include "base/polling.hpp"
#include "base/sync.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <system_error>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

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
  [[nodiscard]] std::uint64_t added() const noexcept { return added_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// From now on the thread begins no runtime call. First it gets the time that the calls take on idle devices. A call may also wait for a
  /// device, and so for ever: the exit goes on then.
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
    call_at_exit([]() noexcept { immortal<Releaser>().stop(); });
    return started_ = true;
  }
  [[nodiscard]] LateRelease& take() noexcept {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return first_ != nullptr; });
    LateRelease& taken = *first_;
    first_ = taken.next;
    return taken;
  }
  void work() noexcept {
    for (;;) {
      LateRelease& late = take();
      calling_.store(true, std::memory_order_seq_cst);
      if (!stopped_.load(std::memory_order_seq_cst)) {
        sync::happens_after(&late);
        const Postponed item = late.item;
        item.release(item);
        done_.fetch_add(1, std::memory_order_release);
      }
      calling_.store(false, std::memory_order_seq_cst);
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
Releaser& releaser() noexcept { return immortal<Releaser>(); }

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
  auto* const own = new (std::nothrow) OwnRelease{{}, item};
  if (own == nullptr) return release(item);
  own->late.item = {run_own, own, item.device};
  release_on_thread(own->late);
}

void release_and_wait(const char* operation, const Postponed& item, int device) noexcept {
  if (in_host_function) return release_on_thread(item);
  if (release_mode_of_wait() == Release::never) return;
  const WatchedWait watched{operation, device < 0 ? 0 : -1 - device};
  item.release(item);
}

bool are_releases_waiting() noexcept { return releaser().done() != releaser().added(); }

void wait_for_releases(const char* operation, std::chrono::nanoseconds at_most) noexcept {
  const std::uint64_t awaited = releaser().added();
  if (releaser().done() >= awaited) return;
  const WatchedWait watched{operation};
  try_for(at_most, [awaited] { return releaser().done() >= awaited; });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
