// SPDX-License-Identifier: Apache-2.0
/// Memory that host and device follow by the same pointer, and that moves by itself.
#pragma once

#include <runnel/memory.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
[[nodiscard]] void* allocate_managed(std::size_t bytes, Device device);
void free_managed(void* pointer, int device) noexcept;
}  // namespace detail

/// Owns `size()` elements of managed memory, uninitialised. Moving on demand is slower than a copy that is known ahead, so nothing in
/// runnel uses it by itself. Synchronise before the host follows the pointer. The destructor waits for the device.
template <class T>
class ManagedBuffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "ManagedBuffer holds trivially copyable elements");

 public:
  static constexpr MemoryKind memory_kind = MemoryKind::managed;  ///< saves copies a question to the runtime

  /// @throws errc::out_of_memory; errc::not_supported where the device has no such memory
  explicit ManagedBuffer(std::size_t size, Device device = Device::current())
      : data_{static_cast<T*>(detail::allocate_managed(detail::bytes_for(size, sizeof(T)), device))},
        size_{size},
        device_{device.ordinal()} {}
  ///@{ The other is empty afterwards.
  ManagedBuffer(ManagedBuffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)}, device_{other.device_} {}
  ManagedBuffer& operator=(ManagedBuffer&& other) noexcept {
    ManagedBuffer taken{std::move(other)};
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(device_, taken.device_);
    return *this;
  }
  ///@}
  ~ManagedBuffer() {
    if (data_ != nullptr) detail::free_managed(data_, device_);
  }

  ///@{ As of a std::span.
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  ///@}
  /// The device it was allocated on.
  [[nodiscard]] Device device() const noexcept { return Device{device_}; }

 private:
  T* data_;
  std::size_t size_;
  int device_;
};

}  // namespace runnel::inline RUNNEL_ABI
