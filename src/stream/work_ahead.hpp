// SPDX-License-Identifier: Apache-2.0
/// What the library knows, without asking the runtime, of the work ahead in a stream. It knows
/// something only of streams that it made and whose handle nobody else has seen: for all others
/// anybody may have enqueued anything.
#pragma once

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

enum class Ahead : std::uint64_t {
  unknown,
  uploads,  ///< nothing but copies to the device, so that nothing ahead writes memory of the host
  idle,     ///< nothing that uses memory of the host, or that the caller has submitted
};

/// A stream's knowledge. An operation that enqueues other work than copies to the device calls
/// disturb() after it has enqueued. An operation that relies on the knowledge, or adds to it, has
/// an AheadScope around it.
class WorkAhead {
 public:
  void disturb() noexcept {
    for (std::uint64_t found = state_.load(std::memory_order_relaxed); found % one_begun != 0;)
      if (state_.compare_exchange_weak(found, (found - found % one_active) + one_begun,
                                       std::memory_order_acq_rel, std::memory_order_relaxed))
        return;
  }

 private:
  friend class AheadScope;
  // In one number: what is known (an Ahead), how many operations are under way, and how many have
  // begun or disturbed.
  static constexpr std::uint64_t one_active = 4, one_begun = std::uint64_t{1} << 20;

  sync::Atomic<std::uint64_t> state_{0};
};

/// Takes the knowledge for the time of one operation, and puts it back as that operation leaves it.
/// Operations of several threads that are under way at the same time know nothing, and leave
/// nothing known: none of them can say what the others enqueue, and when.
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
  /// Whether no other operation of the stream has been under way since this object was made.
  [[nodiscard]] bool is_undisturbed() const noexcept {
    return alone_ != 0 && of_->state_.load(std::memory_order_acquire) == alone_;
  }
  /// The runtime has said that the stream is idle.
  void found_idle() noexcept { known_ = Ahead::idle; }
  /// Until leaves() is called again, the operation leaves nothing known behind.
  void begins_to_enqueue() noexcept { after_ = Ahead::unknown; }
  /// What is ahead now is known.
  void leaves(Ahead ahead) noexcept { known_ = after_ = ahead; }

 private:
  WorkAhead* of_;
  // the stream's number as long as no other operation is under way; 0: one was when this one began
  std::uint64_t alone_ = 0;
  Ahead known_ = Ahead::unknown;
  Ahead after_ = Ahead::unknown;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
