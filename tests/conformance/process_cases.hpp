// SPDX-License-Identifier: Apache-2.0
/// What cases share that run in a process of their own. Such a case prints "passed", or what
/// failed.
#pragma once

#include <cstdio>
#include <string>

namespace process_cases {

inline int failures = 0;

inline void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("failed: %s\n", what.c_str());
  std::fflush(stdout);
}

inline int finish() {
  if (failures == 0) std::puts("passed");
  std::fflush(stdout);
  return failures;
}

/// Runs the case of two processes with that name, or its other process; -1 if there is none.
[[nodiscard]] int run_shared_case(int argc, char** argv);

}  // namespace process_cases
