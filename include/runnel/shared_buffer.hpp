// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// Device memory that other processes of the machine can open.
#pragma once

#include <runnel/ipc_handle.hpp>
#include <runnel/memory.hpp>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
[[nodiscard]] void* allocate_shared(std::size_t bytes, Device device);
[[nodiscard]] IpcMemoryHandle export_memory(void* pointer, std::size_t bytes, int device,
                                            bool opened);
struct OpenedMemory {
  void* pointer;
  std::size_t bytes;
  int device;
};
/// `width`: bytes of an element. The size of the memory must be a multiple of it.
[[nodiscard]] OpenedMemory open_memory(const IpcMemoryHandle& handle, std::size_t width);
void free_shared(void* pointer, std::size_t bytes, int device, bool opened) noexcept;

struct SharedOwner {
  static constexpr MemoryKind kind = MemoryKind::device;
  void free(void* pointer, std::size_t bytes) noexcept {
    free_shared(pointer, bytes, device_, opened_);
  }

  int device_ = -1;
  bool opened_ = false;  // The memory was allocated by another process.
};
}  // namespace detail

/// Owns `size()` elements of device memory, uninitialised, that other processes of the machine can
/// open: see ipc_handle() and from_ipc_handle(). Other buffers cannot be shared, because runtimes
/// do not export memory that was allocated in stream order. This memory is therefore not allocated
/// in stream order: the constructor allocates it before it returns, in multiples of 2 MiB, and the
/// destructor waits for the device, so that no work of this process uses the memory once it
/// returns, and the program may notify the other process. In a host function, and in a function
/// of on_complete(), the destructor does not wait. Order the work of two processes by an Event with
/// EventOptions::interprocess. Requires: the process that allocated the memory keeps its buffer
/// until the others have destroyed theirs, and work on streams of other devices is complete before
/// the destructor runs.
template <class T>
class SharedBuffer : public detail::OwnedArray<T, detail::SharedOwner> {
  using Array = detail::OwnedArray<T, detail::SharedOwner>;

 public:
  /// An empty buffer.
  SharedBuffer() noexcept = default;
  /// Allocates `size` elements on `device`. @throws errc::out_of_memory
  explicit SharedBuffer(std::size_t size, Device device = Device::current())
      : Array{detail::allocate_shared(detail::bytes_for(size, sizeof(T)), device),
              size,
              {device.ordinal(), false}} {}

  /// Opens the memory of another process, on the memory's device. A second buffer that opens the
  /// same handle refers to the same memory; its address may differ. @throws errc::invalid_argument
  /// for bytes that are not a handle, for a handle of this process, and for memory whose size is
  /// not a multiple of sizeof(T); errc::invalid_device if the device is not visible to this
  /// process; errc::invalid_handle or the runtime's own error if the memory was freed
  [[nodiscard]] static SharedBuffer from_ipc_handle(const IpcMemoryHandle& handle) {
    return SharedBuffer{detail::open_memory(handle, sizeof(T))};
  }
  /// Returns the handle with which other processes open the memory. @throws errc::invalid_argument
  /// for an empty buffer, and for a buffer that was opened from a handle
  [[nodiscard]] IpcMemoryHandle ipc_handle() const {
    return detail::export_memory(const_cast<T*>(this->data()), this->size_bytes(), this->device_,
                                 this->opened_);
  }
  /// Whether the memory was allocated by another process.
  [[nodiscard]] bool is_opened() const noexcept { return this->opened_; }
  /// The device of the memory; empty for a buffer that was default-constructed or moved from.
  [[nodiscard]] std::optional<Device> device() const noexcept {
    return detail::device_if_any(this->device_);
  }

  ///@{ A view for kernels and copies.
  [[nodiscard]] DeviceSpan<T> span() noexcept { return {this->data(), this->size()}; }
  [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {this->data(), this->size()}; }
  operator DeviceSpan<T>() noexcept { return span(); }
  operator DeviceSpan<const T>() const noexcept { return span(); }
  ///@}

 private:
  explicit SharedBuffer(detail::OpenedMemory opened) noexcept
      : Array{opened.pointer, opened.bytes / sizeof(T), {opened.device, true}} {}
};

}  // namespace runnel::inline RUNNEL_ABI
