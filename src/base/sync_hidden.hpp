// SPDX-License-Identifier: Apache-2.0
/// The locks of sync.hpp in a build with the option find_races. ThreadSanitizer instruments the
/// locks and condition variables of the C library, whoever uses them. A task and a caller that take
/// the same lock one after the other would then seem to be ordered, and a race between them would
/// be missed. ThreadSanitizer does not see these types, because the library's own code is not
/// instrumented.
#pragma once

#include "base/not_copied.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <memory>
#include <stop_token>

namespace runnel::inline RUNNEL_ABI::sync {

class Mutex : detail::NotCopied {
 public:
  constexpr Mutex() noexcept = default;

  void lock() noexcept {
    if (try_lock()) return;
    while (state_.exchange(contended) != open) state_.wait(contended);
  }
  [[nodiscard]] bool try_lock() noexcept {
    int found = open;
    return state_.compare_exchange_strong(found, locked);
  }
  void unlock() noexcept {
    if (state_.exchange(open) == contended) state_.notify_one();
  }

 private:
  static constexpr int open = 0, locked = 1, contended = 2;  // contended: another thread may wait
  std::atomic<int> state_{open};
};

/// Readers exclude each other, too. That is slower, but correct.
class SharedMutex : public Mutex {
 public:
  void lock_shared() noexcept { lock(); }
  void unlock_shared() noexcept { unlock(); }
};

/// Works with locks of any type. Requires: a thread that changes the condition owns the lock.
class ConditionVariableAny : detail::NotCopied {
 public:
  constexpr ConditionVariableAny() noexcept = default;

  void notify_one() noexcept { notify_all(); }
  void notify_all() noexcept {
    ++notified_;
    notified_.notify_all();
  }
  template <class Lock>
  void wait(Lock& lock) {
    wait_for_change(lock, notified_);
  }
  template <class Lock, class Predicate>
  void wait(Lock& lock, Predicate holds) {
    while (!holds()) wait(lock);
  }
  /// Also returns once `stop` is requested. Returns the last value of `holds()`.
  template <class Lock, class Predicate>
  bool wait(Lock& lock, const std::stop_token& stop, Predicate holds) {
    // On the heap: the thread that requests the stop writes into the object. On the stack, that
    // would look like a race.
    const auto wake = [this] { notify_all(); };
    const auto waking = std::make_unique<std::stop_callback<decltype(wake)>>(stop, wake);
    for (;;) {
      // Loaded first: the stop is requested without the lock.
      const int before = notified_;
      if (holds()) return true;
      if (stop.stop_requested()) return false;
      wait_for_change(lock, before);
    }
  }

 private:
  template <class Lock>
  void wait_for_change(Lock& lock, int before) {
    lock.unlock();
    notified_.wait(before);
    lock.lock();
  }

  std::atomic<int> notified_{0};
};
using ConditionVariable = ConditionVariableAny;

}  // namespace runnel::inline RUNNEL_ABI::sync
