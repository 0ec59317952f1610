// SPDX-License-Identifier: Apache-2.0
/// For critical sections that take some nanoseconds. Without contention it costs a third of a
/// mutex.
#pragma once

#include "base/relax.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace runnel::inline RUNNEL_ABI::detail {

class SpinLock {
 public:
  void lock() noexcept {
    announce_before_lock(0);
    while (!take())
      for (int polls = 0; held_.load(std::memory_order_relaxed);)
        if (++polls < sync::polls(64))
          relax();
        else
          sync::yield();  // The owner may have been preempted.
    announce_locked(0);
  }
  [[nodiscard]] bool try_lock() noexcept {
    if (!take()) return false;
    announce_before_lock(did_not_wait);
    announce_locked(did_not_wait);
    return true;
  }
  void unlock() noexcept {
    announce_before_unlock();
    held_.store(false, std::memory_order_release);
    announce_unlocked();
  }

 private:
  [[nodiscard]] bool take() noexcept { return !held_.exchange(true, std::memory_order_acquire); }

  // ThreadSanitizer checks the order in which locks are taken. By itself it knows only the locks of
  // the C library.
#ifdef __SANITIZE_THREAD__
  static constexpr unsigned did_not_wait = __tsan_mutex_try_lock;
  void announce_before_lock(unsigned how) noexcept { __tsan_mutex_pre_lock(this, how); }
  void announce_locked(unsigned how) noexcept { __tsan_mutex_post_lock(this, how, 0); }
  void announce_before_unlock() noexcept { __tsan_mutex_pre_unlock(this, 0); }
  void announce_unlocked() noexcept { __tsan_mutex_post_unlock(this, 0); }
#else
  static constexpr unsigned did_not_wait = 0;
  void announce_before_lock(unsigned) noexcept {}
  void announce_locked(unsigned) noexcept {}
  void announce_before_unlock() noexcept {}
  void announce_unlocked() noexcept {}
#endif

  sync::Atomic<bool> held_{false};
};

}  // namespace runnel::inline RUNNEL_ABI::detail
