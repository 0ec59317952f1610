// SPDX-License-Identifier: Apache-2.0
/// Buffers: pinned host memory, which copy engines reach directly, and device memory, which kernels work on.
#pragma once

#include <runnel/current.hpp>
#include <runnel/detail/owned_array.hpp>
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
/// count * size. @throws errc::out_of_memory if that does not fit into std::size_t
[[nodiscard]] std::size_t bytes_for(std::size_t count, std::size_t size);
[[nodiscard]] void* allocate_pinned(std::size_t bytes, bool write_combined);
void free_pinned(void* pointer) noexcept;
[[nodiscard]] void* mapped_pointer(void* pointer, Device device);
[[nodiscard]] void* allocate_device(StreamRef stream, std::size_t bytes);
/// Adds the stream to `others`, which free_device() takes.
void add_device_use(std::vector<StreamRef>& others, StreamRef owner, StreamRef stream);
void free_device(void* pointer, std::size_t bytes, StreamRef stream, int device, std::vector<StreamRef>& others) noexcept;

struct PinnedOwner {
  static constexpr MemoryKind kind = MemoryKind::pinned;
  static void free(void* pointer, std::size_t) noexcept { free_pinned(pointer); }
};
struct DeviceOwner {
  static constexpr MemoryKind kind = MemoryKind::device;
  void free(void* pointer, std::size_t bytes) noexcept { free_device(pointer, bytes, stream_, device_, others_); }

  StreamRef stream_;
  int device_;
  std::vector<StreamRef> others_;
};

/// T is U, or U with const added: what a span of U converts to.
template <class U, class T>
concept ElementsOf = std::is_convertible_v<U (*)[], T (*)[]>;
}  // namespace detail

/// Options of pinned memory.
struct PinnedOptions {
  /// True: the host writes the memory faster and devices read it faster, but the host reads it very slowly. False is the default. A
  /// backend without such memory gives plain pinned memory.
  bool write_combined = false;
};

/// A view of elements in device memory. `data()` is for kernels and copies; the host must not follow it.
template <class T>
class DeviceSpan {
 public:
  static constexpr MemoryKind memory_kind = MemoryKind::device;  ///< tells copies the kind of memory, so that they need not ask the runtime

  constexpr DeviceSpan() noexcept = default;
  /// `size` elements that start at `data`.
  constexpr DeviceSpan(T* data, std::size_t size) noexcept : data_{data}, size_{size} {}
  /// A span of T as a span of const T.
  template <detail::ElementsOf<T> U>
  constexpr DeviceSpan(DeviceSpan<U> other) noexcept : data_{other.data()}, size_{other.size()} {}

  ///@{ As of a std::span.
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  ///@}
  /// `count` elements that start at `offset`; without a count, all that follow `offset`. Requires: offset + count <= size().
  /// @throws errc::invalid_argument otherwise
  [[nodiscard]] constexpr DeviceSpan subspan(std::size_t offset, std::size_t count = std::dynamic_extent) const {
    if (offset > size_ || (count != std::dynamic_extent && count > size_ - offset)) [[unlikely]]
      detail::throw_invalid_argument("take a part of a span", "the part ends beyond the span");
    return {data_ + offset, count == std::dynamic_extent ? size_ - offset : count};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of pinned host memory, uninitialised. The host uses it like any array; copies from and to it are direct. The
/// memory comes from the pinned pool (pinned_pool.hpp). A buffer may be destroyed while work uses it: the pool hands the memory out again
/// only when every stream that used it has completed that work. Copies and fills record their use themselves; a kernel or a host function
/// of your own needs record_use().
template <class T>
class PinnedBuffer : public detail::OwnedHostArray<T, detail::PinnedOwner> {
  using Array = detail::OwnedHostArray<T, detail::PinnedOwner>;

 public:
  /// An empty buffer.
  PinnedBuffer() noexcept = default;
  /// `size` elements, aligned to 256 bytes. @throws errc::out_of_memory
  explicit PinnedBuffer(std::size_t size, PinnedOptions options = {})
      : Array{detail::allocate_pinned(detail::bytes_for(size, sizeof(T)), options.write_combined), size, {}} {}

  /// Records that work submitted to `stream` so far uses this memory.
  void record_use(StreamRef stream) const {
    if (this->data() != nullptr) PinnedPool::record_use(this->data(), stream);
  }
  /// The address at which kernels of `device` reach this memory, without a copy; null for an empty buffer.
  /// @throws errc::not_supported or the runtime's own error if the memory cannot be mapped
  [[nodiscard]] T* device_pointer(Device device = Device::current()) const {
    void* const memory = const_cast<T*>(this->data());
    return memory != nullptr ? static_cast<T*>(detail::mapped_pointer(memory, device)) : nullptr;
  }
};

/// Owns `size()` elements of device memory, uninitialised. It is allocated and freed in the order of a stream: work submitted to that
/// stream after the constructor may use the memory, and the memory is freed after the work submitted to it before the destructor. Order
/// other streams by events, and name them with record_stream(), so that the memory is freed after their work too. A stream may be destroyed
/// before its buffers.
template <class T>
class DeviceBuffer : public detail::OwnedArray<T, detail::DeviceOwner> {
  using Array = detail::OwnedArray<T, detail::DeviceOwner>;

 public:
  /// `size` elements on the stream's device. @throws errc::out_of_memory
  explicit DeviceBuffer(std::size_t size, StreamRef stream = current_stream())
      : Array{detail::allocate_device(stream, detail::bytes_for(size, sizeof(T))), size, {stream, stream.device().ordinal(), {}}} {}

  ///@{ A view for kernels and copies.
  [[nodiscard]] DeviceSpan<T> span() noexcept { return {this->data(), this->size()}; }
  [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {this->data(), this->size()}; }
  operator DeviceSpan<T>() noexcept { return span(); }
  operator DeviceSpan<const T>() const noexcept { return span(); }
  ///@}
  /// The stream in whose order the memory is freed.
  [[nodiscard]] StreamRef stream() const noexcept { return this->stream_; }
  /// The device that the memory is on.
  [[nodiscard]] Device device() const noexcept { return Device{this->device_}; }
  /// Records that `stream` uses this memory: it is freed only after the work submitted to that stream until this buffer is destroyed.
  void record_stream(StreamRef stream) {
    if (this->data() != nullptr) detail::add_device_use(this->others_, this->stream_, stream);
  }
};

}  // namespace runnel::inline RUNNEL_ABI
