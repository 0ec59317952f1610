// SPDX-License-Identifier: Apache-2.0
/// `runnel overlap` sends a file through the device and back, with transfers and computing at the
/// same time.
#pragma once

#include "streaming.hpp"

#include <string>

namespace tool {

/// The arguments as typed.
struct OverlapCommand {
  std::string table;
  StreamingOptions streaming;
  std::string timeline;  ///< empty: no timeline
  std::string trace;     ///< empty: no trace
  std::string in;
  std::string out;
};

/// Returns the exit status. @throws Failure, or an exception of runnel. If it throws, no file was
/// created, and existing files are unchanged.
int overlap(const OverlapCommand& command);

}  // namespace tool
