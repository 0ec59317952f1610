// SPDX-License-Identifier: Apache-2.0
/// Determines during a run of overlap() which strategy is faster.
#pragma once

#include <runnel/overlap.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// The first chunks use one strategy, the next ones the other, and the rest the one that took less
/// time. A period is the maximum number of chunks in flight. Each strategy runs for two periods,
/// and the second one is measured: in it every chunk in flight uses that strategy.
class StrategyTrial {
 public:
  /// Whether a run of `chunks` chunks is long enough for a trial. The slower strategy then gets at
  /// most 3 of 32 periods: its two, and the chunks that are enqueued before the second one ends.
  [[nodiscard]] static constexpr bool is_long_enough(std::size_t chunks,
                                                     std::size_t period) noexcept {
    return chunks / 32 >= period;
  }

  /// Requires: `first` is A or B; period > 0.
  StrategyTrial(OverlapStrategy first, std::size_t period) noexcept
      : first_{first},
        other_{first == OverlapStrategy::copy_compute_copy ? OverlapStrategy::stream_per_chunk
                                                           : OverlapStrategy::copy_compute_copy},
        period_{period} {}

  /// The strategy of the next chunk, whose index is `chunk`.
  [[nodiscard]] OverlapStrategy strategy(std::size_t chunk) const noexcept {
    if (chunk < 2 * period_) return first_;
    return first_is_faster_.load(std::memory_order_relaxed) ? first_ : other_;
  }

  /// Requires: called once for each chunk, in order, with the time since the start of the run.
  /// Another thread may call strategy() at the same time.
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
  std::chrono::nanoseconds began_{};       // The begin of the measured period.
  std::chrono::nanoseconds first_took_{};  // The duration of its second period.
  std::atomic<bool> first_is_faster_{false};
};

}  // namespace runnel::inline RUNNEL_ABI::detail
