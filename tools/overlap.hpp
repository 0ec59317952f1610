// SPDX-License-Identifier: Apache-2.0
/// `runnel overlap`: a file through the device and back, transfers and computing at the same time.
#pragma once

#include <string>

namespace tool {

/// As typed.
struct OverlapCommand {
  std::string table;
  std::string chunk = "16M";
  int in_flight = 4;
  int streams = 4;  ///< of the strategy with a stream for each chunk
  std::string strategy = "automatic";
  int device = 0;
  std::string timeline;  ///< empty: none
  std::string trace;     ///< empty: none
  std::string in;
  std::string out;
};

/// Returns the exit status. @throws Failure, or what runnel throws; then there is no new file, and a file that was there is as it was.
int overlap(const OverlapCommand& command);

}  // namespace tool
