// SPDX-License-Identifier: Apache-2.0
/// Pinning memory that is there already.
#pragma once

#include <runnel/detail/byte_size.hpp>
#include <runnel/device.hpp>

#include <concepts>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

/// Pins memory while it lives, so that copies from and to it are direct. Pinning costs about what copying the memory does, some times over:
/// it is for memory that is copied often. The streams that use the memory must have passed before this is destroyed.
class HostRegistration {
 public:
  /// Pins nothing.
  HostRegistration() noexcept = default;
  /// @throws errc::invalid_argument for null, no bytes, and memory of which a part is registered or pinned already; what the runtime says
  /// of memory that it cannot pin
  HostRegistration(void* pointer, std::size_t bytes);
  /// All elements of a vector, an array, a span.
  template <class R>
  requires requires(R& range) {
    { std::data(range) } -> std::convertible_to<void*>;
    std::size(range);
  }
  explicit HostRegistration(R& range)
      : HostRegistration(std::data(range),
                         detail::byte_size(std::size(range), sizeof(*std::data(range)), "pin memory that is there already")) {}
  ///@{ The other is empty afterwards.
  HostRegistration(HostRegistration&& other) noexcept
      : pointer_{std::exchange(other.pointer_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
  HostRegistration& operator=(HostRegistration&& other) noexcept {
    HostRegistration taken{std::move(other)};
    std::swap(pointer_, taken.pointer_);
    std::swap(bytes_, taken.bytes_);
    return *this;
  }
  ///@}
  ~HostRegistration();

  ///@{ What is pinned.
  [[nodiscard]] void* data() const noexcept { return pointer_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }
  ///@}
  /// Where that device's kernels find the memory, without a copy.
  [[nodiscard]] void* device_pointer(Device device = Device::current()) const;

 private:
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace runnel::inline RUNNEL_ABI
