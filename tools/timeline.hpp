// SPDX-License-Identifier: Apache-2.0
/// A picture of what ran when.
#pragma once

#include "lanes.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

struct TimelineText {
  std::string title;     ///< the result
  std::string subtitle;  ///< how it was run
};

/// An SVG of the lanes, with what each was busy. Of a long run it shows an excerpt out of the middle, and says which. `total_chunks` may
/// be more than there are bars for.
[[nodiscard]] std::string draw_timeline(const std::vector<Lane>& lanes, std::size_t total_chunks, const TimelineText& text);

}  // namespace tool
