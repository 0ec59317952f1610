// SPDX-License-Identifier: Apache-2.0
/// `runnel overlap` sends a file through the device and back, with transfers and computing at the same time.
#pragma once

#include "backend.hpp"

#include <string>

namespace tool {

/// The arguments as typed.
struct OverlapCommand {
  std::string table;
  /// On a device large chunks fill the link. The host backend moves bytes through the processor's caches, which hold small ones.
  std::string chunk = host_backend ? "2M" : "16M";
  int in_flight = host_backend ? 8 : 4;
  int streams = 4;  ///< for the strategy with a stream for each chunk
  std::string strategy = "automatic";
  int device = 0;
  std::string timeline;  ///< empty: no timeline
  std::string trace;     ///< empty: no trace
  std::string in;
  std::string out;
};

/// Returns the exit status. @throws Failure, or an exception of runnel. Then no file is made, and existing files are unchanged.
int overlap(const OverlapCommand& command);

}  // namespace tool
