// SPDX-License-Identifier: Apache-2.0
/// Writes a run in the Trace Event Format of ui.perfetto.dev and chrome://tracing.
#pragma once

#include "lanes.hpp"

#include <string>
#include <vector>

namespace tool {

/// Each lane becomes a thread, and each bar a complete event. `process` is the name of the process.
[[nodiscard]] std::string trace_events(const std::vector<Lane>& lanes, const std::string& process);

}  // namespace tool
