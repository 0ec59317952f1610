// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Managed memory: host and device use the same pointer, and the runtime moves the pages on demand.
#pragma once

#include <runnel/detail/memory_advice.hpp>
#include <runnel/memory.hpp>

namespace runnel::inline RUNNEL_ABI {

/// A location of managed memory: a device, or the host.
class MemoryPlace {
 public:
  /// The memory of `device`.
  constexpr MemoryPlace(Device device) noexcept : device_{device} {}
  /// The host's memory.
  [[nodiscard]] static constexpr MemoryPlace host() noexcept { return MemoryPlace{}; }
  /// Whether the location is the host's memory.
  [[nodiscard]] constexpr bool is_host() const noexcept { return !device_; }
  /// The device; empty for the host's memory.
  [[nodiscard]] constexpr std::optional<Device> device() const noexcept { return device_; }
  friend constexpr bool operator==(MemoryPlace, MemoryPlace) noexcept = default;

 private:
  constexpr MemoryPlace() noexcept = default;
  std::optional<Device> device_;
};

/// Moves the pages of `bytes` bytes of managed memory to a location, in stream order, so that later
/// work at that location need not move them on demand. Does nothing on the host backend. @throws
/// errc::invalid_argument for other memory; errc::capture while the stream is being captured; the
/// runtime's own error on devices that cannot move pages on demand
void prefetch_bytes(StreamRef stream, const void* memory, std::size_t bytes, MemoryPlace place);
/// Advises the runtime how the program uses `bytes` bytes of managed memory. Takes effect
/// immediately, not in stream order.
/// @throws as prefetch_bytes(), except for captures
void advise_bytes(const void* memory, std::size_t bytes, MemoryAdvice advice, MemoryPlace place);

namespace detail {
[[nodiscard]] void* allocate_managed(std::size_t bytes, Device device);
void free_managed(void* pointer, std::size_t bytes, int device) noexcept;

struct ManagedOwner {
  static constexpr MemoryKind kind = MemoryKind::managed;
  void free(void* pointer, std::size_t bytes) noexcept { free_managed(pointer, bytes, device_); }

  int device_ = -1;
};
}  // namespace detail

/// Owns `size()` elements of managed memory, uninitialised. Moving pages on demand is slower than
/// an explicit copy, so runnel itself never uses managed memory. Requires: the host synchronizes
/// with the device's work before it reads or writes the elements. The destructor returns at once: a
/// thread of the library frees the memory after the device's work so far. If there is no free
/// memory, an allocation waits at most a second for memory that is being freed this way. CUDA also
/// waits for the device before it reports that there is no memory; sizes that exceed the memory of
/// the machine and its devices together are refused without this wait. A moved-from buffer is
/// empty.
template <class T>
class ManagedBuffer : public detail::OwnedHostArray<T, detail::ManagedOwner> {
  using Array = detail::OwnedHostArray<T, detail::ManagedOwner>;

 public:
  /// An empty buffer.
  ManagedBuffer() noexcept = default;
  /// Allocates `size` elements on `device`. @throws errc::out_of_memory; errc::not_supported if the
  /// device has no managed memory
  explicit ManagedBuffer(std::size_t size, Device device = Device::current())
      : Array{detail::allocate_managed(detail::bytes_for(size, sizeof(T)), device),
              size,
              {device.ordinal()}} {}

  /// The device that the memory was allocated on; empty for a buffer that was default-constructed
  /// or moved from.
  [[nodiscard]] std::optional<Device> device() const noexcept {
    return detail::device_if_any(this->device_);
  }
};

/// As prefetch_bytes(), for all elements of a managed buffer or of a view of managed memory.
template <detail::memory_range Range>
void prefetch(StreamRef stream, const Range& range, MemoryPlace place) {
  prefetch_bytes(
      stream, std::data(range),
      detail::byte_size(std::size(range), sizeof *std::data(range), "prefetch managed memory"),
      place);
}
/// As advise_bytes(), for all elements of a managed buffer or of a view of managed memory.
template <detail::memory_range Range>
void advise(const Range& range, MemoryAdvice advice, MemoryPlace place) {
  advise_bytes(
      std::data(range),
      detail::byte_size(std::size(range), sizeof *std::data(range), "advise on managed memory"),
      advice, place);
}

}  // namespace runnel::inline RUNNEL_ABI
