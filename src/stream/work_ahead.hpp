// SPDX-License-Identifier: Apache-2.0
/// What the library knows, without asking the runtime, of the work ahead in a stream. It knows something only of streams that it made and
/// whose handle nobody else has seen: for all others anybody may have enqueued anything.
#pragma once

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

enum class Ahead : std::uintptr_t {
  unknown,
  uploads,  ///< nothing but copies to the device, so that nothing ahead writes memory of the host
  idle,     ///< nothing that uses memory of the host, or that the caller has submitted
};

/// A stream's knowledge. An operation that enqueues other work than copies to the device calls disturb() after it has enqueued. An
/// operation that relies on the knowledge, or adds to it, has an AheadScope around it.
class WorkAhead {
 public:
  void disturb() noexcept {
    if (state_.load(std::memory_order_relaxed) != word(Ahead::unknown)) state_.store(word(Ahead::unknown), std::memory_order_release);
  }

 private:
  friend class AheadScope;
  [[nodiscard]] static std::uintptr_t word(Ahead ahead) noexcept { return static_cast<std::uintptr_t>(ahead); }

  sync::Atomic<std::uintptr_t> state_{0};  // an Ahead, or the address of the AheadScope of the last operation that has begun
};

/// Takes the knowledge for the time of one operation, and puts it back as that operation leaves it, unless another operation came between.
class AheadScope {
 public:
  /// Null: nothing is known of the stream.
  explicit AheadScope(WorkAhead* of) noexcept : of_{of} {
    if (of_ == nullptr) return;
    const std::uintptr_t found = of_->state_.exchange(own_word(), std::memory_order_acq_rel);
    if (found <= WorkAhead::word(Ahead::idle)) known_ = static_cast<Ahead>(found);
  }
  AheadScope(const AheadScope&) = delete;
  AheadScope& operator=(const AheadScope&) = delete;
  ~AheadScope() {
    std::uintptr_t expected = own_word();
    if (of_ != nullptr)
      of_->state_.compare_exchange_strong(expected, WorkAhead::word(after_), std::memory_order_acq_rel, std::memory_order_relaxed);
  }

  [[nodiscard]] Ahead known() const noexcept { return known_; }
  /// Whether no other operation of the stream has begun or ended since this object was made.
  [[nodiscard]] bool is_undisturbed() const noexcept { return of_ != nullptr && of_->state_.load(std::memory_order_acquire) == own_word(); }
  /// The runtime has said that the stream is idle.
  void found_idle() noexcept { known_ = Ahead::idle; }
  /// Until leaves() is called again, the operation leaves nothing known behind.
  void begins_to_enqueue() noexcept { after_ = Ahead::unknown; }
  /// What is ahead now is known.
  void leaves(Ahead ahead) noexcept { known_ = after_ = ahead; }

 private:
  [[nodiscard]] std::uintptr_t own_word() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }

  WorkAhead* of_;
  Ahead known_ = Ahead::unknown;
  Ahead after_ = Ahead::unknown;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
