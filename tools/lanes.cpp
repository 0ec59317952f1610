// SPDX-License-Identifier: Apache-2.0
#include "lanes.hpp"

#include <algorithm>
#include <iterator>

namespace tool {

const char* name_of(Step step) noexcept {
  constexpr const char* names[step_count] = {"read from the file", "transfer in", "compute",
                                             "transfer out", "write to the file"};
  return names[static_cast<std::size_t>(step)];
}

const char* name_of(runnel::OverlapStrategy strategy) noexcept {
  switch (strategy) {
    case runnel::OverlapStrategy::stream_per_chunk:
      return "stream per chunk";
    case runnel::OverlapStrategy::copy_compute_copy:
      return "copy, compute, copy";
    case runnel::OverlapStrategy::automatic:
      break;
  }
  return "automatic";
}

double milliseconds(std::chrono::nanoseconds time) noexcept {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::vector<Lane> lanes_of(std::span<const runnel::OverlapChunkTimes> times,
                           runnel::OverlapStrategy strategy, std::size_t streams) {
  std::vector<Lane> lanes{{"file read", {}}};
  const bool by_step = strategy == runnel::OverlapStrategy::copy_compute_copy;
  if (by_step)
    for (const char* name : {"copy in", "compute", "copy out"})
      lanes.push_back({std::string{name} + " stream", {}});
  else
    for (std::size_t i = 0; i < streams; ++i) lanes.push_back({"stream " + std::to_string(i), {}});
  lanes.push_back({"file write", {}});

  for (const runnel::OverlapChunkTimes& chunk : times) {
    const auto add = [&](std::size_t lane, Step step, const runnel::OverlapInterval& when) {
      if (when.stop.count() == 0) return;  // The chunk has no such step.
      lanes[lane].bars.push_back(
          {step, chunk.chunk, milliseconds(when.start), milliseconds(when.stop)});
    };
    const std::size_t stream = 1 + (by_step ? 0 : chunk.chunk % streams);
    add(0, Step::read, chunk.read);
    add(stream, Step::copy_in, chunk.copy_in);
    add(stream + (by_step ? 1 : 0), Step::compute, chunk.compute);
    add(stream + (by_step ? 2 : 0), Step::copy_out, chunk.copy_out);
    add(lanes.size() - 1, Step::write, chunk.write);
  }
  if (!times.empty()) {
    if (lanes.back().bars.empty()) lanes.pop_back();
    if (lanes.front().bars.empty()) lanes.erase(lanes.begin());
  }
  return lanes;
}

double busy_ms(std::span<const Lane> lanes, Step step) {
  std::vector<Bar> bars;
  for (const Lane& lane : lanes)
    std::ranges::copy_if(lane.bars, std::back_inserter(bars),
                         [&](const Bar& bar) { return bar.step == step; });
  std::ranges::sort(bars, {}, &Bar::start_ms);
  double busy = 0, end = 0;
  for (const Bar& bar : bars) {
    busy += std::max(0.0, bar.stop_ms - std::max(end, bar.start_ms));
    end = std::max(end, bar.stop_ms);
  }
  return busy;
}

}  // namespace tool
