// SPDX-License-Identifier: Apache-2.0
/// Memory that copies are fast from (pinned), and memory that kernels work on (device).
#pragma once

#include <runnel/current.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/pinned_pool.hpp>
#include <runnel/stream.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// count * size. @throws errc::out_of_memory where that does not fit
[[nodiscard]] std::size_t bytes_for(std::size_t count, std::size_t size);
[[nodiscard]] void* allocate_pinned(std::size_t bytes, bool write_combined);
void free_pinned(void* pointer) noexcept;
[[nodiscard]] void* mapped_pointer(void* pointer, Device device);
[[nodiscard]] void* allocate_device(StreamRef stream, std::size_t bytes);
/// Keeps the stream in `others`, which free_device() takes.
void add_device_use(std::vector<StreamRef>& others, StreamRef owner, StreamRef stream);
void free_device(void* pointer, std::size_t bytes, StreamRef stream, int device, std::vector<StreamRef>& others) noexcept;
}  // namespace detail

/// How pinned memory is wanted.
struct PinnedOptions {
  /// The host writes it faster and devices read it faster, but the host reads it very slowly. Where there is no such memory, the same.
  bool write_combined = false;
};

/// Elements in device memory, viewed: `data()` is for kernels and copies, not for the host to follow.
template <class T>
class DeviceSpan {
 public:
  static constexpr MemoryKind memory_kind = MemoryKind::device;  ///< saves copies a question to the runtime

  constexpr DeviceSpan() noexcept = default;
  /// `size` elements from `data` on.
  constexpr DeviceSpan(T* data, std::size_t size) noexcept : data_{data}, size_{size} {}
  /// A span of T as one of const T.
  template <class U>
  requires std::is_convertible_v<U (*)[], T (*)[]>
  constexpr DeviceSpan(DeviceSpan<U> other) noexcept : data_{other.data()}, size_{other.size()} {}

  ///@{ As of a std::span.
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  ///@}
  /// `count` elements from `offset` on; all that follow `offset` if no count is given. Requires: offset + count <= size().
  /// @throws errc::invalid_argument if that does not hold
  [[nodiscard]] constexpr DeviceSpan subspan(std::size_t offset, std::size_t count = std::dynamic_extent) const {
    if (offset > size_ || (count != std::dynamic_extent && count > size_ - offset)) [[unlikely]]
      detail::throw_invalid_argument("take a part of a span", "the part ends beyond the span");
    return {data_ + offset, count == std::dynamic_extent ? size_ - offset : count};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of pinned host memory, uninitialised. Usable on the host as any array; copies from and to it are direct.
/// The memory comes from a pool (pinned_pool.hpp) and may be dropped with work under way: it is handed out again when every stream
/// that used it has passed. Copies and fills record their use themselves; a kernel or a host function of your own needs record_use().
template <class T>
class PinnedBuffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "PinnedBuffer holds trivially copyable elements");

 public:
  static constexpr MemoryKind memory_kind = MemoryKind::pinned;  ///< saves copies a question to the runtime

  PinnedBuffer() noexcept = default;
  /// Aligned to 256 bytes. @throws errc::out_of_memory
  explicit PinnedBuffer(std::size_t size, PinnedOptions options = {})
      : data_{static_cast<T*>(detail::allocate_pinned(detail::bytes_for(size, sizeof(T)), options.write_combined))}, size_{size} {}
  ///@{ The other is empty afterwards.
  PinnedBuffer(PinnedBuffer&& other) noexcept : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)} {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer taken{std::move(other)};
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ///@}
  ~PinnedBuffer() {
    if (data_ != nullptr) detail::free_pinned(data_);
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

  /// Work submitted to the stream so far uses this memory.
  void record_use(StreamRef stream) const {
    if (data_ != nullptr) PinnedPool::record_use(data_, stream);
  }
  /// Where that device's kernels find the same memory, without a copy. @throws errc::not_supported and the like where it cannot be mapped
  [[nodiscard]] T* device_pointer(Device device = Device::current()) const {
    return data_ != nullptr ? static_cast<T*>(detail::mapped_pointer(data_, device)) : nullptr;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of device memory, uninitialised, allocated and freed in the order of a stream: usable by work submitted to
/// that stream after the constructor, freed after the work submitted to it before the destructor. Order other streams by events, and name
/// them with record_stream(), so that it is freed after their work too. A stream may be destroyed before its buffers.
template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "DeviceBuffer holds trivially copyable elements");

 public:
  static constexpr MemoryKind memory_kind = MemoryKind::device;  ///< saves copies a question to the runtime

  /// On the stream's device. @throws errc::out_of_memory
  explicit DeviceBuffer(std::size_t size, StreamRef stream = current_stream())
      : data_{static_cast<T*>(detail::allocate_device(stream, detail::bytes_for(size, sizeof(T))))},
        size_{size},
        stream_{stream},
        device_{stream.device().ordinal()} {}
  ///@{ The other is empty afterwards.
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)},
        stream_{other.stream_},
        device_{other.device_},
        others_{std::exchange(other.others_, {})} {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer taken{std::move(other)};
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(stream_, taken.stream_);
    std::swap(device_, taken.device_);
    std::swap(others_, taken.others_);
    return *this;
  }
  ///@}
  ~DeviceBuffer() {
    if (data_ != nullptr) detail::free_device(data_, size_bytes(), stream_, device_, others_);
  }

  ///@{ As of a std::span.
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  ///@}
  ///@{ A view for kernels and copies.
  [[nodiscard]] DeviceSpan<T> span() noexcept { return {data_, size_}; }
  [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {data_, size_}; }
  operator DeviceSpan<T>() noexcept { return span(); }
  operator DeviceSpan<const T>() const noexcept { return span(); }
  ///@}
  /// The stream in whose order it will be freed.
  [[nodiscard]] StreamRef stream() const noexcept { return stream_; }
  /// Where the memory is.
  [[nodiscard]] Device device() const noexcept { return Device{device_}; }
  /// Work submitted to that stream until this is destroyed uses the memory: it is freed after that, too.
  void record_stream(StreamRef stream) {
    if (data_ != nullptr) detail::add_device_use(others_, stream_, stream);
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  StreamRef stream_;
  int device_;
  std::vector<StreamRef> others_;
};

}  // namespace runnel::inline RUNNEL_ABI
