// SPDX-License-Identifier: Apache-2.0
/// For critical sections of a few instructions without calls. Without contention it costs a third
/// of a mutex.
#pragma once

#include "base/relax.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

class SpinLock {
 public:
  void lock() noexcept {
    while (!try_lock())
      for (int polls = 0; held_.load(std::memory_order_relaxed);)
        if (++polls < sync::polls(64))
          relax();
        else
          sync::yield();  // The owner may have been preempted.
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  sync::Atomic<bool> held_{false};
};

}  // namespace runnel::inline RUNNEL_ABI::detail
