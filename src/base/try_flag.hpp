// SPDX-License-Identifier: Apache-2.0
/// A flag that one thread at a time sets for a scope, and for which no other thread waits.
#pragma once

#include "base/not_copied.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

class TryFlag : NotCopied {
 public:
  explicit TryFlag(sync::Atomic<bool>& flag) noexcept
      : flag_{flag}, is_set_here_{!flag.exchange(true, std::memory_order_acquire)} {}
  ~TryFlag() {
    if (is_set_here_) flag_.store(false, std::memory_order_release);
  }
  /// False if another thread had set the flag.
  explicit operator bool() const noexcept { return is_set_here_; }

 private:
  sync::Atomic<bool>& flag_;
  const bool is_set_here_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
