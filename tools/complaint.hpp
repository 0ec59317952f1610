// SPDX-License-Identifier: Apache-2.0
/// The message and the exit status of the command when it fails.
#pragma once

#include <exception>
#include <string>

namespace tool {

inline constexpr int failed_status = 1;
inline constexpr int misused_status = 2;

struct Complaint {
  std::string message;  ///< one line, without a line break
  int status;           ///< the command's exit status
};

[[nodiscard]] Complaint complaint_of(const std::exception_ptr& error);

/// Prints the message to standard error, and returns the exit status.
int print(const Complaint& complaint);

}  // namespace tool
