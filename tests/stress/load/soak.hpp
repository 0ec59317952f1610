// SPDX-License-Identifier: Apache-2.0
/// A soak: operations of all kinds on many streams by several threads, for as long as one likes.
#pragma once

#include <chrono>
#include <cstdint>

#include "figures.hpp"

namespace load {

struct SoakOptions {
  long operations = 100'000'000;
  int threads = 4;
  int lanes = 4;         ///< streams of each thread that live long
  double seconds = 1e9;  ///< end after this time, even if operations are left
  double interval = 10;  ///< seconds between two lines of figures
  uint64_t seed = 1;
  long growth_mib = 64;  ///< by how much memory may grow after the first fifth of the run
};

/// Runs it, prints the figures at each interval, and checks that they stay bounded and that all
/// bytes and counts are right.
void soak(const SoakOptions& options, Verdict& verdict);

}  // namespace load
