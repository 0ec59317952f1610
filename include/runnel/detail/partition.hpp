// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// A value that identifies a part of a device; <runnel/partition.hpp> has the function that creates
/// parts.
#pragma once

#include <runnel/device.hpp>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
struct PartitionData;
struct Access;
}  // namespace detail

/// A set of a device's multiprocessors, for `StreamOptions{.partition = p}`. It is a value that
/// partition() returns. Parts live as long as the process.
class Partition {
 public:
  /// Stands for all multiprocessors of the stream's device.
  constexpr Partition() noexcept = default;
  /// The number of multiprocessors of the part, which is at least the requested number. Requires:
  /// partition() has returned this value.
  [[nodiscard]] int multiprocessors() const noexcept;
  /// The device of the part. Requires: partition() has returned this value.
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
