// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Pins memory that the caller has allocated.
#pragma once

#include <runnel/detail/byte_size.hpp>
#include <runnel/detail/memory_range.hpp>

#include <concepts>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// A contiguous range of elements, which may be const.
template <class R>
concept HostRange = requires(R& range) {
  { std::data(range) } -> std::convertible_to<const void*>;
  std::size(range);
};
// R is as a forwarding reference deduces it: a container that is a temporary, and anything else.
template <class R>
concept PinnableTemporary = HostRange<R> && owning_temporary<R>;
template <class R>
concept PinnableRange = HostRange<R> && !owning_temporary<R>;
}  // namespace detail

/// Pins existing memory for as long as this object lives, so that copies from and to that memory
/// are not staged. Pinning takes several times as long as copying the memory, so it pays for memory
/// that is copied often. Requires: all work that uses the memory has completed before this object
/// is destroyed. The destructor waits for all devices on CUDA, because the program may free the
/// memory next, and memory must not be reused while it is registered. Therefore, destroy it only
/// where no pending work waits for this thread. In a host function, and in a function of
/// on_complete(), it does not wait: the registration ends some time later.
///
/// Pinning does not write to the memory, so the memory may be const. The access rights of its pages
/// decide how it is pinned: if one page is read-only, as in a file that is mapped for reading, the
/// memory is pinned for reading only, and devices must not write it either.
class HostRegistration {
 public:
  /// Pins nothing.
  HostRegistration() noexcept = default;
  /// Pins `bytes` bytes. If other objects have pinned some of the pages already, this object pins
  /// only the others, and later unpins only those; memory whose first and last byte other code or a
  /// pool has pinned stays as it is. Requires: what has pinned those pages outlives this object.
  /// @throws errc::invalid_argument for null, for 0 bytes, and for memory of which a part is
  /// managed memory, device memory, or not mapped; errc::not_supported for read-only pages if
  /// Device::can_pin_read_only_memory() is false for the current device; the runtime's own error
  /// for memory that it cannot pin, such as memory of which other code has pinned a part
  HostRegistration(const void* pointer, std::size_t bytes);
  /// @cond
  template <detail::PinnableTemporary R>
  explicit HostRegistration RUNNEL_REFUSED(
      "a temporary container ends at once: give it a name and keep it as long as it is pinned",
      R&&);
  /// @endcond
  /// Pins the memory of all elements of a vector, an array or a span.
  template <detail::PinnableRange R>
  explicit HostRegistration(R&& range)
      : HostRegistration(std::data(range),
                         detail::byte_size(std::size(range), sizeof(*std::data(range)),
                                           "pin memory that is there already")) {}
  ///@{ The other object pins nothing afterwards.
  HostRegistration(HostRegistration&& other) noexcept
      : pointer_{std::exchange(other.pointer_, nullptr)},
        bytes_{std::exchange(other.bytes_, 0)},
        owner_{other.owner_} {}
  HostRegistration& operator=(HostRegistration&& other) noexcept {
    HostRegistration taken{std::move(other)};
    std::swap(pointer_, taken.pointer_);
    std::swap(bytes_, taken.bytes_);
    std::swap(owner_, taken.owner_);
    return *this;
  }
  ///@}
  ~HostRegistration();

  /// @{ The pinned memory; null and 0 bytes if nothing is pinned. Requires: the program does not
  /// write memory that was passed as const.
  [[nodiscard]] void* data() const noexcept { return pointer_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }
  /// @} The address at which kernels of `device` reach this memory, without a copy. Requires:
  /// kernels do not write read-only memory.
  [[nodiscard]] void* device_pointer(Device device = Device::current()) const;
  /// The same for elements: `device_pointer<float>()`. Requires: the memory holds elements of this
  /// type.
  template <class T>
  [[nodiscard]] T* device_pointer(Device device = Device::current()) const {
    return static_cast<T*>(device_pointer(device));
  }

 private:
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t owner_ = 0;  // Identifies this object in the library's table of registrations.
};

}  // namespace runnel::inline RUNNEL_ABI
