// SPDX-License-Identifier: Apache-2.0
/// Device memory in stream order for containers and allocators of others, and what is known of it.
#pragma once

#include <runnel/current.hpp>
#include <runnel/device.hpp>
#include <runnel/stream.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Allocates and frees in stream order, without owning anything: a small value. Two resources of one device are the same.
class DeviceResource {
 public:
  static constexpr std::size_t max_alignment = 256;  ///< bytes; what every block has

  /// Memory of `device`.
  explicit constexpr DeviceResource(Device device) noexcept : device_{device} {}

  /// Usable by work submitted to the stream from now on; null for 0 bytes. @throws errc::out_of_memory; errc::invalid_argument for another
  /// device's stream and for an alignment that is not a power of 2 up to max_alignment
  [[nodiscard]] void* allocate(StreamRef stream, std::size_t bytes, std::size_t alignment = max_alignment) const;
  /// Freed after the work submitted to the stream so far, which any stream of the device may be. @throws as allocate()
  void deallocate(StreamRef stream, void* pointer, std::size_t bytes, std::size_t alignment = max_alignment) const;

  /// Whose memory it is.
  [[nodiscard]] constexpr Device device() const noexcept { return device_; }
  friend constexpr bool operator==(DeviceResource, DeviceResource) noexcept = default;

 private:
  Device device_;
};
/// The resource of a device.
[[nodiscard]] inline DeviceResource device_resource(Device device = Device::current()) { return DeviceResource{device}; }

/// Of memory allocated through runnel; sizes in bytes, as asked for.
struct DeviceStatistics {
  std::size_t in_use;  ///< at this moment
  std::size_t peak;    ///< the most that `in_use` was
  std::size_t blocks;  ///< in use
};
/// Counts at this moment; makes no runtime call.
[[nodiscard]] DeviceStatistics device_statistics(Device device);

/// The device's pool keeps up to this many bytes that are not in use, rather than give them back whenever a stream is waited for; 0 at
/// first. The maximum of size_t keeps all. @throws errc::not_supported where the device has no pools
void set_release_threshold(Device device, std::size_t bytes);

}  // namespace runnel::inline RUNNEL_ABI
