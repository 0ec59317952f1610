// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// Parts of a device, for streams whose kernels run only on some of its multiprocessors.
#pragma once

#include <runnel/detail/partition.hpp>

#include <array>
#include <concepts>
#include <span>

namespace runnel::inline RUNNEL_ABI {

/// Divides a device: part `i` gets at least `multiprocessors[i]` of its multiprocessors, rounded up
/// to the granularity of the device, and the last part gets the rest. No two parts of one call
/// share a multiprocessor. Another call with the same arguments returns the same parts. The first
/// such call waits until the work of all streams of the device is complete (CUDA). Requires:
/// parts.size() == multiprocessors.size() + 1.
/// @throws errc::not_supported without Device::has_partitions(); errc::invalid_argument for a
/// number below 1, and if nothing is left for the last part
void partition(Device device, std::span<const int> multiprocessors, std::span<Partition> parts);
/// The same: `auto [small, rest] = partition(device, 16);`
template <std::same_as<int>... N>
[[nodiscard]] std::array<Partition, sizeof...(N) + 1> partition(Device device,
                                                                N... multiprocessors) {
  const std::array<int, sizeof...(N)> wanted{multiprocessors...};
  std::array<Partition, sizeof...(N) + 1> parts;
  partition(device, std::span<const int>{wanted}, std::span<Partition>{parts});
  return parts;
}

}  // namespace runnel::inline RUNNEL_ABI
