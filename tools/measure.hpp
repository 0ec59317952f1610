// SPDX-License-Identifier: Apache-2.0
/// What `runnel bench` measures.
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
  std::string memory;      ///< "pinned", "ordinary"
  double gigabytes_per_s;  ///< of both directions together, where it is both
  double held_us;          ///< for how long the caller was held
};

struct OperationCost {
  std::string operation;
  double ns;  ///< of the calling thread
};

struct OverlapRate {
  std::string memory;
  std::string strategy;
  std::string chosen;      ///< what automatic was
  double gigabytes_per_s;  ///< of the input; as many bytes come back
  double of_limit;         ///< the part of what the link carries when it copies both ways at once, which is all that there is to gain
  double speedup;          ///< over one chunk after the other
  std::vector<runnel::OverlapChunkTimes> times;  ///< of one more run, if asked for
};

struct OverlapSizes {
  std::size_t bytes;
  std::size_t chunk;
  std::size_t in_flight;
  std::vector<runnel::Device> devices;
  bool record_times = false;
};

/// Hears what is about to be measured.
using Announce = std::function<void(const std::string&)>;

/// Copies of `bytes`, in each direction and both at once.
[[nodiscard]] std::vector<LinkRate> measure_links(runnel::Device device, std::size_t bytes, const Announce& announce);

[[nodiscard]] std::vector<OperationCost> measure_operations(runnel::Device device, const Announce& announce);

struct OverlapRates {
  double limit;     ///< GB/s each way, pinned memory, both ways at once, on all devices together
  unsigned rounds;  ///< of the kernel; where the device is the host, as many as make computing last as long as the transfers
  std::vector<OverlapRate> rates;
};
/// y = 2x + 1 of every byte, chunk after chunk. @throws Failure if a byte is wrong
[[nodiscard]] OverlapRates measure_overlaps(const OverlapSizes& sizes, const Announce& announce);

struct RangeRate {
  std::size_t bytes;
  std::size_t device_bytes;  ///< the most that was held in all devices' memory
  double seconds;
  double gigabytes_per_s;
};
/// The same once, in place, of a range that may be larger than the device. @throws Failure if a byte is wrong
[[nodiscard]] RangeRate measure_range(const OverlapSizes& sizes, const Announce& announce);

}  // namespace tool
