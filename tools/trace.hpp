// SPDX-License-Identifier: Apache-2.0
/// A run in the Trace Event format, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include "lanes.hpp"

#include <string>
#include <vector>

namespace tool {

/// A thread for each lane, a complete event for each bar. `process` names the whole.
[[nodiscard]] std::string trace_events(const std::vector<Lane>& lanes, const std::string& process);

}  // namespace tool
