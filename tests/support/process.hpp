// SPDX-License-Identifier: Apache-2.0
/// For tests that need processes of their own: children, and whether the library works.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <runnel/runnel.hpp>

namespace test_support {

/// Whether the stream does its work, in order.
[[nodiscard]] inline bool works(runnel::StreamRef stream) {
  runnel::PinnedBuffer<int> memory{16};
  int seen = 0;
  runnel::fill(stream, memory, 5);
  stream.launch_host_func([&] { seen = memory[15]; });
  stream.synchronize();
  return seen == 5;
}

/// The exit status of a child; 100 + n if signal n ended it.
[[nodiscard]] inline int wait_for_child(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/// Forks a child that ends with the status `body()`. Returns how it ended.
template <class Body>
[[nodiscard]] int in_child(Body&& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return wait_for_child(child);
}

}  // namespace test_support
