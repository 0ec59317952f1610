// SPDX-License-Identifier: Apache-2.0
/// The lanes of a timeline or trace: one for each stream, one for reading and one for writing.
#pragma once

#include <runnel/overlap.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tool {

enum class Step { read, copy_in, compute, copy_out, write };
inline constexpr std::size_t step_count = 5;
[[nodiscard]] const char* name_of(Step step) noexcept;

struct Bar {
  Step step;
  std::size_t chunk;
  double start_ms;  ///< relative to the start of the run
  double stop_ms;
};

struct Lane {
  std::string name;
  std::vector<Bar> bars;  ///< in the order of the chunks
};

[[nodiscard]] double milliseconds(std::chrono::nanoseconds time) noexcept;

/// The lanes of chunks that ran with `strategy` on `streams` streams. Lanes for reading and writing
/// are omitted if no chunk has such a step.
[[nodiscard]] std::vector<Lane> lanes_of(std::span<const runnel::OverlapChunkTimes> times,
                                         runnel::OverlapStrategy strategy, std::size_t streams);

/// The time during which at least one of the lanes performed the step.
[[nodiscard]] double busy_ms(std::span<const Lane> lanes, Step step);

/// The strategy's name, such as "stream per chunk" or "copy, compute, copy".
[[nodiscard]] const char* name_of(runnel::OverlapStrategy strategy) noexcept;

}  // namespace tool
