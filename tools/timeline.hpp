// SPDX-License-Identifier: Apache-2.0
/// Draws a timeline of a run.
#pragma once

#include "lanes.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

struct TimelineText {
  std::string title;     ///< the result of the run
  std::string subtitle;  ///< sizes, strategy and device
};

/// Returns an SVG image of the lanes, with the share of time that each was busy. A long run is
/// shown as an excerpt from its middle, which the subtitle states. `total_chunks` may be larger
/// than the number of chunks in `lanes`.
[[nodiscard]] std::string draw_timeline(const std::vector<Lane>& lanes, std::size_t total_chunks,
                                        const TimelineText& text);

}  // namespace tool
