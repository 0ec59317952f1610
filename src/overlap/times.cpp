// SPDX-License-Identifier: Apache-2.0
#include <runnel/overlap_times.hpp>

#include <algorithm>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace {

/// The union of the intervals, sorted and disjoint.
[[nodiscard]] std::vector<OverlapInterval> union_of(std::vector<OverlapInterval> intervals) {
  std::ranges::sort(intervals, {}, &OverlapInterval::start);
  std::vector<OverlapInterval> result;
  for (const OverlapInterval& next : intervals) {
    if (!result.empty() && next.start <= result.back().stop)
      result.back().stop = std::max(result.back().stop, next.stop);
    else
      result.push_back(next);
  }
  return result;
}

std::chrono::nanoseconds total(const std::vector<OverlapInterval>& intervals) noexcept {
  std::chrono::nanoseconds sum{};
  for (const OverlapInterval& interval : intervals) sum += interval.length();
  return sum;
}

}  // namespace

OverlapMeasure measure_overlap(std::span<const OverlapChunkTimes> chunks) {
  std::vector<OverlapInterval> transfers;
  std::vector<OverlapInterval> computing;
  for (const OverlapChunkTimes& times : chunks) {
    transfers.push_back(times.copy_in);
    transfers.push_back(times.copy_out);
    computing.push_back(times.compute);
  }
  transfers = union_of(std::move(transfers));
  computing = union_of(std::move(computing));

  std::chrono::nanoseconds both{};
  auto transfer = transfers.begin();
  auto compute = computing.begin();
  while (transfer != transfers.end() && compute != computing.end()) {
    both += std::max(std::chrono::nanoseconds{}, std::min(transfer->stop, compute->stop) -
                                                     std::max(transfer->start, compute->start));
    if (transfer->stop < compute->stop)
      ++transfer;
    else
      ++compute;
  }
  return {total(transfers), total(computing), both};
}

}  // namespace runnel::inline RUNNEL_ABI
