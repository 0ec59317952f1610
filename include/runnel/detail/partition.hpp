// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// The value that names a part of a device; <runnel/partition.hpp> has the function that makes
/// parts.
#pragma once

#include <runnel/device.hpp>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
struct PartitionData;
struct Access;
}  // namespace detail

/// Some of a device's multiprocessors, for `StreamOptions{.partition = p}`: a value, made by
/// partition(). Parts live as long as the process.
class Partition {
 public:
  /// No part: all multiprocessors of the stream's device.
  constexpr Partition() noexcept = default;
  /// How many multiprocessors the part has: at least as many as were asked for. Requires: it is one
  /// of partition()'s.
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

}  // namespace runnel::inline RUNNEL_ABI
