// SPDX-License-Identifier: Apache-2.0
/// `runnel bench` measures this machine in about a minute.
#pragma once

#include <string>
#include <vector>

namespace tool {

/// The arguments as typed. An empty size means the backend's default.
struct BenchCommand {
  std::vector<int> devices = {0};
  std::string size;
  std::string chunk;
  int in_flight = 4;
  std::string range;
  bool json = false;
  std::string timelines;  ///< a folder; empty: no timelines
  std::string compare;    ///< a file with earlier results; empty: none
  double threshold = 20;  ///< percent, from which on a row counts as slower
};

/// The exit status if a row is slower than in the earlier results.
inline constexpr int slower_status = 3;

/// Returns the exit status. @throws Failure, or what runnel throws
int bench(const BenchCommand& command);

}  // namespace tool
