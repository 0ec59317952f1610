// SPDX-License-Identifier: Apache-2.0
#include "chunk_times.hpp"

#include <algorithm>

namespace tool {

namespace {

/// The same time without overlaps, in order.
std::vector<Interval> united(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::start);
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (!result.empty() && next.start <= result.back().stop)
      result.back().stop = std::max(result.back().stop, next.stop);
    else
      result.push_back(next);
  }
  return result;
}

double total(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const Interval& interval : intervals) sum += interval.length();
  return sum;
}

}  // namespace

Overlap measure_overlap(const std::vector<ChunkTimes>& chunks) {
  std::vector<Interval> transfers, kernels;
  for (const ChunkTimes& times : chunks) {
    transfers.push_back(times.in);
    transfers.push_back(times.out);
    kernels.push_back(times.compute);
  }
  transfers = united(std::move(transfers));
  kernels = united(std::move(kernels));

  double both = 0;
  auto transfer = transfers.begin();
  auto kernel = kernels.begin();
  while (transfer != transfers.end() && kernel != kernels.end()) {
    both += std::max(0.0, std::min(transfer->stop, kernel->stop) - std::max(transfer->start, kernel->start));
    if (transfer->stop < kernel->stop)
      ++transfer;
    else
      ++kernel;
  }
  return {total(transfers), total(kernels), both};
}

}  // namespace tool
