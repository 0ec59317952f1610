// SPDX-License-Identifier: Apache-2.0
/// `runnel info`: what there is to run on.
#pragma once

namespace tool {

/// Prints the backend and every device, or with `why_only` just the line that says why there is none. Returns the exit status.
int info(bool why_only);

}  // namespace tool
