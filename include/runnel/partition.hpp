// SPDX-License-Identifier: Apache-2.0
/// Parts of a device: streams whose kernels run on some of its multiprocessors only.
#pragma once

#include <runnel/device.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
struct PartitionData;
struct Access;
}  // namespace detail

/// Some of a device's multiprocessors, for `StreamOptions{.partition = p}`: a small value, made by partition(). The parts themselves live
/// as long as the process.
class Partition {
 public:
  /// No part: all multiprocessors of the stream's device.
  constexpr Partition() noexcept = default;

  /// How many multiprocessors the part has: at least as many as were asked for. Requires: it is one of partition()'s.
  [[nodiscard]] int multiprocessors() const noexcept;
  /// The device. Requires: it is one of partition()'s.
  [[nodiscard]] Device device() const noexcept;
  /// False for the value that stands for all multiprocessors.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return data_ != nullptr; }
  friend constexpr bool operator==(Partition a, Partition b) noexcept { return a.data_ == b.data_; }

 private:
  friend struct detail::Access;
  constexpr explicit Partition(const detail::PartitionData* data) noexcept : data_{data} {}

  const detail::PartitionData* data_ = nullptr;
};

/// Divides a device: part `i` gets at least `multiprocessors[i]` of its multiprocessors, rounded up to what the device can separate, and
/// the last part gets the rest. No two parts of one call share a multiprocessor. The same call again gives the same parts. Requires:
/// parts.size() == multiprocessors.size() + 1.
/// @throws errc::not_supported without Device::has_partitions(); errc::invalid_argument for a number below 1, and if nothing is left for
/// the last part
void partition(Device device, std::span<const int> multiprocessors, std::span<Partition> parts);
/// The same: `auto [small, rest] = partition(device, 16);`
template <std::same_as<int>... N>
[[nodiscard]] std::array<Partition, sizeof...(N) + 1> partition(Device device, N... multiprocessors) {
  const std::array<int, sizeof...(N)> wanted{multiprocessors...};
  std::array<Partition, sizeof...(N) + 1> parts;
  partition(device, std::span<const int>{wanted}, std::span<Partition>{parts});
  return parts;
}

}  // namespace runnel::inline RUNNEL_ABI
