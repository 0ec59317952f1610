// SPDX-License-Identifier: Apache-2.0
/// `runnel info`: what there is to run on.
#pragma once

#include <string>

namespace tool {

/// Why there is no device, and what to do: what the machine shows, else the runtime's own words.
std::string why_none();

/// Prints the backend and every device, or with `why_only` just the line that says why there is none. Returns the exit status.
int info(bool why_only);

}  // namespace tool
