// SPDX-License-Identifier: Apache-2.0
/// Tests of Staging::set_options(), which works only before the first staged copy: no other test of
/// this program makes one.
#include <runnel/error.hpp>
#include <runnel/staging.hpp>

#include <gtest/gtest.h>

#include <cstdlib>

namespace {
using namespace runnel;

constexpr std::size_t mib = 1UL << 20;

StagingOptions after(const StagingOptions& asked) {
  Staging::set_options(asked);
  return Staging::options();
}

TEST(StagingOptions, OptionsThatWereSetAreUsed) {
  const StagingOptions found = after({.workers = 3, .chunk = 2 * mib, .memory = 64 * mib});
  EXPECT_EQ(found.workers, 3);
  EXPECT_EQ(found.chunk, 2 * mib);
  EXPECT_EQ(found.memory, 64 * mib);
}

TEST(StagingOptions, ZerosMeanDefaults) {
  const StagingOptions found = after({});
  EXPECT_GE(found.workers, 1);
  EXPECT_LE(found.workers, 12);
  EXPECT_EQ(found.chunk, 16 * mib);
  EXPECT_EQ(found.memory, 512 * mib);
}

TEST(StagingOptions, ZerosMeanTheEnvironmentIfItIsSet) {
  ::setenv("RUNNEL_STAGING_WORKERS", "5", 1);
  ::setenv("RUNNEL_STAGING_CHUNK", "1M", 1);
  ::setenv("RUNNEL_STAGING_MEMORY", "32M", 1);
  const StagingOptions found = after({.workers = 2});
  const StagingOptions all = after({});
  for (const char* const name :
       {"RUNNEL_STAGING_WORKERS", "RUNNEL_STAGING_CHUNK", "RUNNEL_STAGING_MEMORY"})
    ::unsetenv(name);
  EXPECT_EQ(found.workers, 2);
  EXPECT_EQ(all.workers, 5);
  EXPECT_EQ(found.chunk, mib);
  EXPECT_EQ(found.memory, 32 * mib);
}

TEST(StagingOptions, OptionsStayWithinTheirLimits) {
  const StagingOptions found = after({.workers = 1000, .chunk = 1});
  EXPECT_EQ(found.workers, 64);
  EXPECT_EQ(found.chunk, mib / 2);
  EXPECT_EQ(after({.chunk = 4096 * mib}).chunk, 1024 * mib);
  try {
    Staging::set_options({.workers = -1});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), errc::invalid_argument);
  }
}

}  // namespace
