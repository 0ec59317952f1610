// SPDX-License-Identifier: Apache-2.0
#include "overlap/trial.hpp"

#include <gtest/gtest.h>

namespace runnel {
namespace {

using detail::StrategyTrial;
using std::chrono::nanoseconds;

constexpr OverlapStrategy a = OverlapStrategy::stream_per_chunk;
constexpr OverlapStrategy b = OverlapStrategy::copy_compute_copy;
constexpr std::size_t period = 8;

/// The strategies of 64 chunks, the last `period` of which are in flight, if a chunk of A takes
/// `of_a` and one of B `of_b`.
std::vector<OverlapStrategy> strategies(OverlapStrategy first, nanoseconds of_a, nanoseconds of_b) {
  StrategyTrial trial{first, period};
  std::vector<OverlapStrategy> chosen;
  nanoseconds now{};
  for (std::size_t chunk = 0; chunk < 64; ++chunk) {
    if (chunk >= period) {
      now += chosen[chunk - period] == a ? of_a : of_b;
      trial.finished(chunk - period, now);
    }
    chosen.push_back(trial.strategy(chunk));
  }
  return chosen;
}

void expect(const std::vector<OverlapStrategy>& chosen, OverlapStrategy first,
            OverlapStrategy other, OverlapStrategy faster) {
  for (std::size_t chunk = 0; chunk < chosen.size(); ++chunk)
    EXPECT_EQ(chosen[chunk], chunk < 2 * period       ? first
                             : chunk < 5 * period - 1 ? other
                                                      : faster)
        << chunk;
}

TEST(StrategyTrial, GoesOnWithTheFasterOne) {
  expect(strategies(b, nanoseconds{12}, nanoseconds{10}), b, a, b);
  expect(strategies(b, nanoseconds{10}, nanoseconds{12}), b, a, a);
  expect(strategies(a, nanoseconds{12}, nanoseconds{10}), a, b, b);
  expect(strategies(a, nanoseconds{10}, nanoseconds{12}), a, b, a);
}

TEST(StrategyTrial, KeepsTheFirstIfBothAreAsFast) {
  expect(strategies(b, nanoseconds{10}, nanoseconds{10}), b, a, b);
}

TEST(StrategyTrial, NeedsARunThatIsMuchLonger) {
  EXPECT_TRUE(StrategyTrial::is_long_enough(256, 8));
  EXPECT_FALSE(StrategyTrial::is_long_enough(255, 8));
  EXPECT_FALSE(StrategyTrial::is_long_enough(static_cast<std::size_t>(-1),
                                             static_cast<std::size_t>(-1) / 2));
}

}  // namespace
}  // namespace runnel
