// SPDX-License-Identifier: Apache-2.0
/// What cases share that run in a process of their own. Such a case prints "passed", or what
/// failed.
#pragma once

#include <cstdio>
#include <optional>
#include <runnel/error.hpp>
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

/// Expects the expression to throw an Error that names an operation, with this code if there is
/// one.
#define EXPECT_REFUSED(wanted, ...) \
  expect_refused(#__VA_ARGS__, wanted, [&] { static_cast<void>(__VA_ARGS__); })
template <class F>
void expect_refused(const std::string& what, std::optional<runnel::errc> code, F&& f) {
  try {
    f();
    expect(false, what + " did not throw");
  } catch (const runnel::Error& error) {
    expect(!code || error.code() == *code, what + " threw: " + error.what());
    expect(*error.operation() != '\0', what + " names no operation");
  }
}

/// Runs the case of two processes with that name, or its other process; -1 if there is none.
int run_shared_case(int argc, char** argv);

}  // namespace process_cases
