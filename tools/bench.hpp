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
  std::string timelines;  ///< the folder for timelines; empty: none
  std::string compare;    ///< the file with earlier results; empty: none
  double threshold = 20;  ///< in percent: a row that is slower by more is reported
};

/// The exit status if a row is slower than in the earlier results.
inline constexpr int slower_status = 3;

/// Returns the exit status. @throws Failure, or what runnel throws
int bench(const BenchCommand& command);

}  // namespace tool
