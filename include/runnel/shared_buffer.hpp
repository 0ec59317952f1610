// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// Device memory that other processes can open.
#pragma once

#include <runnel/ipc_handle.hpp>
#include <runnel/memory.hpp>

#include <cstddef>
#include <optional>

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
/// `width` is the size of an element, of which the memory must hold a whole number.
[[nodiscard]] OpenedMemory open_memory(const IpcMemoryHandle& handle, std::size_t width);
void free_shared(void* pointer, std::size_t bytes, int device, bool opened) noexcept;

struct SharedOwner {
  static constexpr MemoryKind kind = MemoryKind::device;
  void free(void* pointer, std::size_t bytes) noexcept {
    free_shared(pointer, bytes, device_, opened_);
  }

  int device_ = -1;
  bool opened_ = false;  // the memory is another process's
};
}  // namespace detail

/// Owns `size()` elements of device memory, uninitialised, that other processes of the machine can
/// open: ipc_handle() and from_ipc_handle(). Other device memory cannot be shared: runtimes export
/// none that was allocated in stream order. So this memory is not: the constructor allocates it at
/// once, in steps of 2 MiB, and the destructor waits for the device: afterwards the program may
/// tell the other process that this one is done with the memory. In a host function it does not
/// wait. Order the work of two processes by an Event with EventOptions::interprocess. Requires: the
/// process that made the memory keeps it until the others have destroyed their buffers, and work on
/// streams of other devices is complete before the destructor.
template <class T>
class SharedBuffer : public detail::OwnedArray<T, detail::SharedOwner> {
  using Array = detail::OwnedArray<T, detail::SharedOwner>;

 public:
  /// An empty buffer.
  SharedBuffer() noexcept = default;
  /// `size` elements. @throws errc::out_of_memory
  explicit SharedBuffer(std::size_t size, Device device = Device::current())
      : Array{detail::allocate_shared(detail::bytes_for(size, sizeof(T)), device),
              size,
              {device.ordinal(), false}} {}

  /// Opens the memory of another process, on the device that has it. A second buffer of the same
  /// handle is the same memory, at the same address or another. @throws errc::invalid_argument for
  /// bytes that are no handle, for a handle of this process, and for memory that holds no whole
  /// number of T; errc::invalid_device if this process does not see the device;
  /// errc::invalid_handle or the runtime's own error if the memory is gone
  [[nodiscard]] static SharedBuffer from_ipc_handle(const IpcMemoryHandle& handle) {
    return SharedBuffer{detail::open_memory(handle, sizeof(T))};
  }
  /// What other processes open the memory by. @throws errc::invalid_argument for an empty buffer,
  /// and for one that was opened itself
  [[nodiscard]] IpcMemoryHandle ipc_handle() const {
    return detail::export_memory(const_cast<T*>(this->data()), this->size_bytes(), this->device_,
                                 this->opened_);
  }
  /// Whether the memory is another process's.
  [[nodiscard]] bool is_opened() const noexcept { return this->opened_; }
  /// The device that the memory is on; empty for an empty buffer that was made without arguments.
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
