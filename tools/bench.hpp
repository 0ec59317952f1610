// SPDX-License-Identifier: Apache-2.0
/// `runnel bench`: what this machine can do, in about a minute.
#pragma once

#include <string>
#include <vector>

namespace tool {

/// As typed. Empty sizes: chosen by the backend.
struct BenchCommand {
  std::vector<int> devices = {0};
  std::string size;
  std::string chunk;
  int in_flight = 4;
  std::string range;
  bool json = false;
  std::string timelines;  ///< a folder; empty: none
};

/// Returns the exit status. @throws Failure, or what runnel throws
int bench(const BenchCommand& command);

}  // namespace tool
