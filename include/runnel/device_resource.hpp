// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Device memory for other libraries' containers and allocators, and statistics of it.
#pragma once

#include <runnel/current.hpp>
#include <runnel/device.hpp>
#include <runnel/stream.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Device memory that was allocated through runnel. Sizes are in bytes, as the caller asked for
/// them.
struct DeviceStatistics {
  std::size_t in_use;  ///< bytes allocated at this moment
  std::size_t peak;  ///< the most that `in_use` ever was, or was since DeviceResource::reset_peak()
  std::size_t blocks;  ///< blocks allocated at this moment
};

/// Allocates and frees memory of one device in stream order. It is a small value that owns nothing:
/// two resources of one device are equal.
class DeviceResource {
 public:
  static constexpr std::size_t max_alignment = 256;  ///< bytes; every block is aligned to this

  /// The memory of the current device.
  DeviceResource() : DeviceResource{Device::current()} {}
  /// The memory of `device`.
  explicit constexpr DeviceResource(Device device) noexcept : device_{device} {}

  /// Allocates `bytes` bytes, for work submitted to `stream` from now on. Returns null for 0 bytes.
  /// @throws errc::out_of_memory; errc::invalid_argument for a stream of another device and for an
  /// alignment that is not a power of 2 up to max_alignment
  [[nodiscard]] void* allocate(StreamRef stream, std::size_t bytes,
                               std::size_t alignment = max_alignment) const;
  /// Frees the block after the work submitted to `stream` so far; any stream of the device will do.
  /// Null is nothing to do. Requires: `pointer` is a block in use of this device, of `bytes` bytes.
  /// Another pointer is not freed, nothing reports it, and statistics() is wrong from then on.
  /// @throws as allocate()
  void deallocate(StreamRef stream, void* pointer, std::size_t bytes,
                  std::size_t alignment = max_alignment) const;

  /// The device whose memory it is.
  [[nodiscard]] constexpr Device device() const noexcept { return device_; }
  /// What is allocated on the device through runnel, by any resource or buffer. Makes no runtime
  /// call.
  [[nodiscard]] DeviceStatistics statistics() const;
  /// Makes the bytes in use now the peak.
  void reset_peak() const;
  /// Sets the most bytes that may be allocated on the device through runnel at a time (default: no
  /// limit). An allocation beyond it throws errc::out_of_memory, which names this limit, and asks
  /// the runtime for nothing. What is in use beyond a new limit stays. Shared and managed memory,
  /// and memory of resources of your own, do not count. A LimitResource (resource_adaptors.hpp)
  /// limits a part of the program instead: what is allocated through it, from whichever resource.
  void set_limit(std::size_t bytes) const;
  /// The limit in bytes; the maximum of std::size_t if none was set.
  [[nodiscard]] std::size_t limit() const;
  /// The bytes that the device's pool holds at this moment, used and unused ones, also for other
  /// users of the pool.
  /// @throws errc::not_supported if the device has no memory pools
  [[nodiscard]] std::size_t reserved() const;
  /// Sets how many unused bytes the device's pool keeps when a stream is waited for (0 = give all
  /// back, default); the maximum of std::size_t keeps everything. It applies to the whole device.
  /// @throws errc::not_supported if the device has no memory pools
  void set_release_threshold(std::size_t bytes) const;

  /// Frees memory whose free still waits for another thread's default stream, as far as that is
  /// complete, and gives the unused bytes of the device's pool back to the system.
  void trim() const;

  friend constexpr bool operator==(DeviceResource, DeviceResource) noexcept = default;

 private:
  Device device_;
};
}  // namespace runnel::inline RUNNEL_ABI
