// SPDX-License-Identifier: Apache-2.0
/// `runnel info` prints the devices.
#pragma once

#include <string>

namespace tool {

/// Why there is no device, and what to do. If the machine's files do not explain it, the text comes
/// from the runtime.
std::string why_no_device();

/// Prints the backend and every device. With `why_only` prints one line that says why there is no
/// device. Returns the exit status.
int info(bool why_only);

}  // namespace tool
