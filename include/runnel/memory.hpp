// SPDX-License-Identifier: Apache-2.0
/// Memory that copies are fast from (pinned), and memory that kernels work on (device).
#pragma once

#include <runnel/current.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/stream.hpp>

#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// count * size. @throws errc::out_of_memory where that does not fit
[[nodiscard]] std::size_t bytes_for(std::size_t count, std::size_t size);
[[nodiscard]] void* allocate_pinned(std::size_t bytes);
void free_pinned(void* pointer) noexcept;
[[nodiscard]] void* allocate_device(StreamRef stream, std::size_t bytes);
void free_device(void* pointer, StreamRef stream, int device) noexcept;
}  // namespace detail

/// Elements in device memory, viewed: `data()` is for kernels and copies, not for the host to follow.
template <class T>
class DeviceSpan {
 public:
  static constexpr MemoryKind memory_kind = MemoryKind::device;

  constexpr DeviceSpan() noexcept = default;
  constexpr DeviceSpan(T* data, std::size_t size) noexcept : data_{data}, size_{size} {}
  /// A span of T as one of const T.
  template <class U>
  requires std::is_convertible_v<U (*)[], T (*)[]>
  constexpr DeviceSpan(DeviceSpan<U> other) noexcept : data_{other.data()}, size_{other.size()} {}

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  /// `count` elements from `offset` on; both are clamped to what is there.
  [[nodiscard]] constexpr DeviceSpan subspan(std::size_t offset, std::size_t count = std::numeric_limits<std::size_t>::max()) const {
    const std::size_t begin = offset < size_ ? offset : size_;
    return {data_ + begin, count < size_ - begin ? count : size_ - begin};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of pinned host memory, uninitialised. Usable on the host as any array; copies from and to it are direct.
/// Wait for the streams that copy from or to it before it is destroyed.
template <class T>
class PinnedBuffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "PinnedBuffer holds trivially copyable elements");

 public:
  static constexpr MemoryKind memory_kind = MemoryKind::pinned;

  PinnedBuffer() noexcept = default;
  /// @throws errc::out_of_memory
  explicit PinnedBuffer(std::size_t size)
      : data_{static_cast<T*>(detail::allocate_pinned(detail::bytes_for(size, sizeof(T))))}, size_{size} {}
  PinnedBuffer(PinnedBuffer&& other) noexcept : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)} {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer taken{std::move(other)};
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~PinnedBuffer() {
    if (data_ != nullptr) detail::free_pinned(data_);
  }

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

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of device memory, uninitialised, allocated and freed in the order of a stream: usable by work submitted to
/// that stream after the constructor, freed after the work submitted to it before the destructor. Order other streams by events.
template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "DeviceBuffer holds trivially copyable elements");

 public:
  static constexpr MemoryKind memory_kind = MemoryKind::device;

  /// On the stream's device. @throws errc::out_of_memory
  explicit DeviceBuffer(std::size_t size, StreamRef stream = current_stream())
      : data_{static_cast<T*>(detail::allocate_device(stream, detail::bytes_for(size, sizeof(T))))},
        size_{size},
        stream_{stream},
        device_{stream.device().ordinal()} {}
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)}, stream_{other.stream_}, device_{other.device_} {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer taken{std::move(other)};
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(stream_, taken.stream_);
    std::swap(device_, taken.device_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) detail::free_device(data_, stream_, device_);
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] DeviceSpan<T> span() noexcept { return {data_, size_}; }
  [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {data_, size_}; }
  operator DeviceSpan<T>() noexcept { return span(); }
  operator DeviceSpan<const T>() const noexcept { return span(); }
  /// The stream in whose order it will be freed.
  [[nodiscard]] StreamRef stream() const noexcept { return stream_; }
  [[nodiscard]] Device device() const noexcept { return Device{device_}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  StreamRef stream_;
  int device_;
};

}  // namespace runnel::inline RUNNEL_ABI
