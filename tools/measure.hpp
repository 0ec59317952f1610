// SPDX-License-Identifier: Apache-2.0
/// The measurements of `runnel bench`.
#pragma once

#include <runnel/device.hpp>
#include <runnel/overlap.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tool {

struct LinkRate {
  std::string direction;   ///< "in", "out", "both"
  std::string memory;      ///< "pinned", "pageable"
  double gigabytes_per_s;  ///< for "both": the sum of both directions
  double call_us;          ///< how long the call blocked the calling thread
};

struct OperationCost {
  std::string operation;
  double ns;  ///< the time of the calling thread
};

struct OverlapRate {
  std::string memory;
  std::string strategy;
  std::string chosen;      ///< the strategy that "automatic" chose
  double gigabytes_per_s;  ///< for the input; the output has the same size
  double of_limit;  ///< relative to the rate of the link when it copies in both directions at once
  double of_bound;  ///< relative to HostBound::beside_devices; 0 for pinned memory, which needs no
                    ///< such threads
  double speedup;   ///< relative to one chunk after the other
  std::vector<runnel::OverlapChunkTimes>
      times;  ///< the times of one more run, if `record_times` is set
};

struct OverlapSizes {
  std::size_t bytes;
  std::size_t chunk;
  std::size_t in_flight;
  std::vector<runnel::Device> devices;
  bool record_times = false;
};

/// Called with the name of the next measurement.
using Announce = std::function<void(const std::string&)>;

/// Measures copies of `bytes` bytes in each direction, and in both at once.
[[nodiscard]] std::vector<LinkRate> measure_links(runnel::Device device, std::size_t bytes,
                                                  const Announce& announce);

[[nodiscard]] std::vector<OperationCost> measure_operations(runnel::Device device,
                                                            const Announce& announce);

/// The rate that the host's memory permits for overlap() from pageable memory, in GB/s in each
/// direction. It is measured with plain threads, as many as the library's staging workers, that
/// copy in both directions between pageable and pinned memory without waiting for each other.
struct HostBound {
  std::size_t threads;
  double alone;
  double beside_devices;  ///< while the devices copy as many bytes; the same as `alone` on the host
                          ///< backend, where no device copies
};

struct OverlapRates {
  double limit;  ///< in GB/s in each direction: for pinned memory, both directions at once, all
                 ///< devices together
  HostBound bound;
  unsigned rounds;  ///< rounds of the kernel; on the host backend chosen so that computing takes as
                    ///< long as the transfers
  std::vector<OverlapRate> rates;
};
/// Measures overlap() with y = 2x + 1 of every byte, for each strategy. @throws Failure if a byte
/// is wrong
[[nodiscard]] OverlapRates measure_overlaps(const OverlapSizes& sizes, const Announce& announce);

struct RangeRate {
  std::size_t bytes;
  std::size_t device_bytes;  ///< peak memory use on all devices together
  double seconds;
  double gigabytes_per_s;
};
/// Runs the same computation once, in place, on a range that may be larger than the device's
/// memory. @throws Failure if a byte is wrong
[[nodiscard]] RangeRate measure_range(const OverlapSizes& sizes, const Announce& announce);

}  // namespace tool
