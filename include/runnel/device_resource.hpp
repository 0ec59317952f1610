// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Device memory for containers and allocators of other libraries, and statistics of device memory.
#pragma once

#include <runnel/current.hpp>

namespace runnel::inline RUNNEL_ABI {

/// Statistics of the device memory that was allocated through runnel. Sizes are in bytes, as the
/// callers requested them.
struct DeviceStatistics {
  std::size_t in_use;  ///< bytes allocated at this moment
  std::size_t
      peak;  ///< the maximum of `in_use`, since the start or since DeviceResource::reset_peak()
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
  /// Frees the block after the work submitted to `stream` so far, which may be any stream of the
  /// device. Does nothing for null. Requires: `pointer` is an allocated block of this device, of
  /// `bytes` bytes. For another pointer nothing is freed, no error is reported, and statistics() is
  /// wrong from then on.
  /// @throws as allocate()
  void deallocate(StreamRef stream, void* pointer, std::size_t bytes,
                  std::size_t alignment = max_alignment) const;

  /// The device whose memory it is.
  [[nodiscard]] constexpr Device device() const noexcept { return device_; }
  /// Statistics of the memory that all resources and buffers have allocated on the device through
  /// runnel. Makes no runtime call.
  [[nodiscard]] DeviceStatistics statistics() const;
  /// Sets `peak` to the bytes in use at this moment.
  void reset_peak() const;
  /// Limits the bytes that are allocated on the device through runnel at any time (default: no
  /// limit). An allocation beyond the limit throws errc::out_of_memory with a text that names the
  /// limit, and makes no runtime call. Blocks that are in use beyond a new limit stay valid. Shared
  /// and managed memory, and memory of resources of your own, are not included. To limit a part of
  /// the program instead, use a LimitResource (resource_adaptors.hpp).
  void set_limit(std::size_t bytes) const;
  /// The limit in bytes; the maximum of std::size_t if none was set.
  [[nodiscard]] std::size_t limit() const;
  /// What the library's memory pool of the device holds at this moment, in bytes: used and unused.
  /// @throws errc::not_supported if the device has no memory pools
  [[nodiscard]] std::size_t reserved() const;
  /// Sets how many unused bytes the library's memory pool of the device keeps when the program
  /// waits for a stream or the device; it returns the rest to the system. Default: half of the
  /// device's memory.
  /// @throws errc::not_supported if the device has no memory pools
  void set_release_threshold(std::size_t bytes) const;

  /// Performs deferred frees, which wait for another thread's default stream, if their work is
  /// complete, and returns the unused bytes of the library's memory pool to the system.
  void trim() const;

  friend constexpr bool operator==(DeviceResource, DeviceResource) noexcept = default;

 private:
  Device device_;
};
}  // namespace runnel::inline RUNNEL_ABI
