// SPDX-License-Identifier: Apache-2.0
/// Managed memory: host and device use the same pointer, and the runtime moves the pages on demand.
#pragma once

#include <runnel/memory.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
[[nodiscard]] void* allocate_managed(std::size_t bytes, Device device);
void free_managed(void* pointer, std::size_t bytes, int device) noexcept;

struct ManagedOwner {
  static constexpr MemoryKind kind = MemoryKind::managed;
  void free(void* pointer, std::size_t bytes) noexcept { free_managed(pointer, bytes, device_); }

  int device_ = -1;
};
}  // namespace detail

/// Owns `size()` elements of managed memory, uninitialised. Moving pages on demand is slower than a copy that is known ahead, so runnel
/// itself never uses it. Requires: the host synchronizes with the device's work before it reads or writes the elements. The destructor
/// waits for the device. A buffer that was moved from is empty.
template <class T>
class ManagedBuffer : public detail::OwnedHostArray<T, detail::ManagedOwner> {
  using Array = detail::OwnedHostArray<T, detail::ManagedOwner>;

 public:
  /// An empty buffer.
  ManagedBuffer() noexcept = default;
  /// `size` elements. @throws errc::out_of_memory; errc::not_supported if the device has no managed memory
  explicit ManagedBuffer(std::size_t size, Device device = Device::current())
      : Array{detail::allocate_managed(detail::bytes_for(size, sizeof(T)), device), size, {device.ordinal()}} {}

  /// The device that the memory was allocated on; Device{-1} for an empty buffer without one.
  [[nodiscard]] Device device() const noexcept { return Device{this->device_}; }
};

}  // namespace runnel::inline RUNNEL_ABI
