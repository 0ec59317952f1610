// SPDX-License-Identifier: Apache-2.0
/// Error handling of the raw runtime calls in benchmarks.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace bench {

/// Ends the program if a runtime call failed.
inline void must(int status) {
  if (status == 0) return;
  std::fprintf(stderr, "raw runtime call failed: %d\n", status);
  std::exit(1);
}

}  // namespace bench
