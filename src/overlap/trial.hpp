// SPDX-License-Identifier: Apache-2.0
/// Finds out during a run of overlap() which strategy is faster.
#pragma once

#include <runnel/overlap.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// The first chunks go by one strategy, the next ones by the other, and the rest by the one that
/// took less time. A period is as many chunks as may be in flight. Each strategy has two periods,
/// and the second one counts: in it every chunk in flight goes by that strategy.
class StrategyTrial {
 public:
  /// Whether a run of so many chunks is long enough for a trial. The other strategy gets at most 3
  /// of 32 periods: its two, and what is enqueued before the second one is over.
  [[nodiscard]] static constexpr bool is_worth_it(std::size_t chunks, std::size_t period) noexcept {
    return chunks / 32 >= period;
  }

  /// Requires: `first` is A or B; period > 0.
  StrategyTrial(OverlapStrategy first, std::size_t period) noexcept
      : first_{first},
        other_{first == OverlapStrategy::copy_compute_copy ? OverlapStrategy::stream_per_chunk
                                                           : OverlapStrategy::copy_compute_copy},
        period_{period} {}

  /// The strategy of the next chunk, which has this index.
  [[nodiscard]] OverlapStrategy strategy(std::size_t chunk) const noexcept {
    if (chunk < 2 * period_) return first_;
    return first_is_faster_.load(std::memory_order_relaxed) ? first_ : other_;
  }

  /// To be called for each chunk in order, with the time since the start of the run. Another thread
  /// may call strategy() meanwhile.
  void finished(std::size_t chunk, std::chrono::nanoseconds now) noexcept {
    const std::size_t done = chunk + 1;
    if (done == period_ || done == 3 * period_) began_ = now;
    if (done == 2 * period_) first_took_ = now - began_;
    if (done == 4 * period_)
      first_is_faster_.store(first_took_ <= now - began_, std::memory_order_relaxed);
  }

 private:
  const OverlapStrategy first_;
  const OverlapStrategy other_;
  const std::size_t period_;
  std::chrono::nanoseconds began_{};       // the period that is measured
  std::chrono::nanoseconds first_took_{};  // for its second period
  std::atomic<bool> first_is_faster_{false};
};

}  // namespace runnel::inline RUNNEL_ABI::detail
