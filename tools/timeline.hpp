// SPDX-License-Identifier: Apache-2.0
/// A picture of what ran when.
#pragma once

#include "chunk_times.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

struct TimelineText {
  std::string title;     ///< the result
  std::string subtitle;  ///< how it was run
};

/// An SVG with a lane for each stream and for the file's reading and writing. Of a long run it shows an excerpt out of the middle, and
/// says which. `total_chunks` may be more than there are times for.
[[nodiscard]] std::string draw_timeline(const std::vector<ChunkTimes>& times, std::size_t total_chunks, const TimelineText& text);

}  // namespace tool
