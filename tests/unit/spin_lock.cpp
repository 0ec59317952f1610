// SPDX-License-Identifier: Apache-2.0
/// ThreadSanitizer checks the order in which a SpinLock and other locks are taken.
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>

#include "base/spin_lock.hpp"

#include "../support/sanitizers.hpp"

namespace {

void lock_both_ways() {
  runnel::detail::SpinLock spin;
  runnel::sync::Mutex mutex;
  {
    const std::lock_guard outer{spin};
    const std::lock_guard inner{mutex};
  }
  const std::lock_guard outer{mutex};
  const std::lock_guard inner{spin};
}

TEST(SpinLockDeathTest, ItsOrderIsChecked) {
  if (!test_support::is_under_thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer alone checks the order of locks";
  constexpr int exit_of_sanitizer = 66;
  EXPECT_EXIT((lock_both_ways(), std::exit(0)), testing::ExitedWithCode(exit_of_sanitizer),
              "lock-order-inversion");
}

}  // namespace
