// SPDX-License-Identifier: Apache-2.0
/// `runnel info` prints the devices.
#pragma once

#include <string>

namespace tool {

/// Explains why there is no device, and how to fix it. If the machine's files do not explain it,
/// the text comes from the runtime.
std::string why_no_device();

/// Prints the backend and every device; with `why_only`, prints one line that explains why there is
/// no device. Returns the exit status.
int info(bool why_only);

}  // namespace tool
