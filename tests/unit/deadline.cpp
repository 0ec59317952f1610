// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/deadline.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <ratio>

namespace runnel { namespace {

using detail::deadline_after, detail::deadline_at;
using std::chrono::duration, std::chrono::hours, std::chrono::nanoseconds, std::chrono::seconds;
using Clock = std::chrono::steady_clock;

/// The result depends on how the clock's time is rounded.
TEST(Deadline, AllTheTimeThatIsLeftIsFar) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_GT(deadline_after(Clock::time_point::max() - Clock::now()), Clock::now() + hours{24})
        << i;
    ASSERT_GT(deadline_after(Clock::time_point::max() - Clock::now() - nanoseconds{i}),
              Clock::now() + hours{24})
        << i;
    ASSERT_GT(deadline_at(Clock::time_point::max()), Clock::now() + hours{24}) << i;
    ASSERT_GT(deadline_at(Clock::time_point::max() - nanoseconds{i}), Clock::now() + hours{24})
        << i;
  }
}

TEST(Deadline, ALongTimeIsFar) {
  const auto tomorrow = Clock::now() + hours{24};
  EXPECT_GT(deadline_after(hours::max()), tomorrow);
  EXPECT_GT(deadline_after(duration<unsigned long long, std::nano>::max()), tomorrow);
  EXPECT_GT(deadline_after(duration<float>{9.2233e9F}), tomorrow);
  EXPECT_GT(deadline_after(duration<double>{INFINITY}), tomorrow);
  EXPECT_GT(deadline_after(duration<signed char, std::ratio<3600>>{100}), tomorrow);
}

TEST(Deadline, WithoutTimeItIsNow) {
  const auto soon = Clock::now() + hours{1};
  EXPECT_LT(deadline_after(seconds::min()), soon);
  EXPECT_LT(deadline_after(duration<double>{NAN}), soon);
  EXPECT_LT(deadline_after(duration<double>{-INFINITY}), soon);
  EXPECT_LT(deadline_at(Clock::time_point::min()), soon);
}

TEST(Deadline, IsNeverEarly) {
  const auto later = [](auto timeout) {
    const auto now = Clock::now();
    return deadline_after(timeout) - now;
  };
  EXPECT_GE(later(duration<int, std::ratio<1, 3>>{3}), seconds{1});
  EXPECT_GE(later(duration<long long, std::atto>{1}), nanoseconds{1});
  EXPECT_GE(later(duration<unsigned char>{200}), seconds{200});
}

}}  // namespace runnel
