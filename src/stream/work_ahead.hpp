// SPDX-License-Identifier: Apache-2.0
/// What the library knows of a stream's unfinished work without a query. It is known only for
/// streams that the library created and whose handle no other code has: in any other stream, other
/// code may have enqueued work.
#pragma once

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

enum class Ahead : std::uint64_t {
  unknown,
  uploads,  ///< only copies to the device: no unfinished work writes host memory
  idle,     ///< no unfinished work of the caller, and none that uses host memory
};

/// The state of one stream. An operation that enqueues work other than copies to the device calls
/// invalidate() after it has enqueued. An operation that uses or updates the state has an
/// AheadScope around it.
class WorkAhead {
 public:
  void invalidate() noexcept {
    for (std::uint64_t found = state_.load(std::memory_order_relaxed); found % one_begun != 0;)
      if (state_.compare_exchange_weak(found, (found - found % one_active) + one_begun,
                                       std::memory_order_acq_rel, std::memory_order_relaxed))
        return;
  }

 private:
  friend class AheadScope;
  // One number combines the known state (an Ahead), the count of active operations, and the count
  // of operations that have begun or invalidated the state.
  static constexpr std::uint64_t one_active = 4, one_begun = std::uint64_t{1} << 20;

  sync::Atomic<std::uint64_t> state_{0};
};

/// Takes the state for the duration of one operation, and stores the state that the operation
/// leaves. Concurrent operations of several threads know nothing and leave nothing known: none of
/// them knows what the others enqueue, and when.
class AheadScope {
 public:
  /// Null: nothing is known of the stream.
  explicit AheadScope(WorkAhead* of) noexcept : of_{of} {
    if (of_ == nullptr) return;
    const std::uint64_t found = of_->state_.fetch_add(WorkAhead::one_begun + WorkAhead::one_active,
                                                      std::memory_order_acq_rel);
    if (found % WorkAhead::one_begun >= WorkAhead::one_active) return;
    known_ = static_cast<Ahead>(found % WorkAhead::one_active);
    alone_ = found + WorkAhead::one_begun + WorkAhead::one_active;
  }
  AheadScope(const AheadScope&) = delete;
  AheadScope& operator=(const AheadScope&) = delete;
  ~AheadScope() {
    if (of_ == nullptr) return;
    std::uint64_t found = of_->state_.load(std::memory_order_relaxed), left = 0;
    do {
      left = found - found % WorkAhead::one_active - WorkAhead::one_active;
      if (found == alone_) left += static_cast<std::uint64_t>(after_);
    } while (!of_->state_.compare_exchange_weak(found, left, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
  }

  [[nodiscard]] Ahead known() const noexcept { return known_; }
  /// Whether no other operation of the stream has been active since this object was made.
  [[nodiscard]] bool is_undisturbed() const noexcept {
    return alone_ != 0 && of_->state_.load(std::memory_order_acquire) == alone_;
  }
  /// The runtime has reported that the stream is idle.
  void found_idle() noexcept { known_ = Ahead::idle; }
  /// Until leaves() is called again, the operation leaves nothing known.
  void begins_to_enqueue() noexcept { after_ = Ahead::unknown; }
  /// Sets the state that is known now.
  void leaves(Ahead ahead) noexcept { known_ = after_ = ahead; }

 private:
  WorkAhead* of_;
  // The stream's number while no other operation is active. 0: one was active when this one began.
  std::uint64_t alone_ = 0;
  Ahead known_ = Ahead::unknown;
  Ahead after_ = Ahead::unknown;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
