// SPDX-License-Identifier: Apache-2.0
#include <runnel/shared_buffer.hpp>

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/process.hpp"
#include "device/device_call.hpp"
#include "device/ipc.hpp"
#include "memory/recorded_uses.hpp"
#include "memory/releaser.hpp"
#include "slot/device_waits.hpp"

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// CUDA shares whole blocks of 2 MiB, and several smaller allocations would be in one block.
constexpr size_t step = size_t{2} << 20;

/// Requires: the memory's device is current.
backend::status close_after_wait(void* memory) noexcept {
  // Closing does not wait for work. If the wait for the device fails, the memory stays open.
  int device = 0;
  const backend::status s = backend::get_device(device);
  const bool is_idle = s == backend::ok && wait_for_device(device) == Progress::complete;
  return is_idle ? backend::close_memory(memory) : s;
}

}  // namespace

void* allocate_shared(size_t bytes, Device device) {
  const InternalDeviceCall call{device.ordinal(), "allocate memory to share"};
  if (bytes == 0) return nullptr;
  watch_main_thread();
  size_t rounded = 0;
  if (__builtin_add_overflow(bytes, step - 1, &rounded))
    throw_error(errc::out_of_memory, call.operation(),
                "the number of bytes does not fit an address");
  void* block = nullptr;
  ScopedEvent event{
      [&] { return about_allocation(call.operation(), MemoryKind::device, bytes, call.device()); }};
  call.check(backend::malloc_exportable(block, rounded / step * step));
  event.allocated(block);
  count_up(counters.shared_and_managed_blocks);
  return block;
}

IpcMemoryHandle export_memory(void* pointer, size_t bytes, int device, bool opened) {
  constexpr const char* operation = "share memory with other processes";
  enter(operation);
  if (pointer == nullptr) throw_invalid_argument(operation, "the buffer is empty");
  if (opened)
    throw_invalid_argument(
        operation, "the memory is another process's: send on the handle that it was opened by");
  const InternalDeviceCall call{device, operation};
  IpcContent content{};
  content.bytes = bytes;
  call.check(backend::export_memory(content.native, pointer));
  return {seal_handle(content, IpcKind::memory, device, operation)};
}

OpenedMemory open_memory(const IpcMemoryHandle& handle, size_t width) {
  constexpr const char* operation = "open another process's memory";
  enter(operation);
  int device = 0;
  const IpcContent content = read_handle(handle.bytes, IpcKind::memory, device, operation);
  if (content.bytes % width != 0)
    throw_invalid_argument(operation, "the memory holds no whole number of elements of this type");
  watch_main_thread();
  const InternalDeviceCall call{device, operation};
  OpenedMemory opened{nullptr, content.bytes, device};
  ScopedEvent event{
      [&] { return about_allocation(operation, MemoryKind::device, opened.bytes, device); }};
  call.check(backend::open_memory(opened.pointer, content.native));
  event.allocated(opened.pointer);
  count_up(counters.shared_and_managed_blocks);
  return opened;
}

void free_shared(void* pointer, size_t bytes, int device, bool opened) noexcept {
  count_down(counters.shared_and_managed_blocks);
  // In a forked child no lock may be taken.
  if (release_mode_before_wait() == Release::never) return;
  constexpr const char* operation = "free shared memory";
  emit_free(operation, MemoryKind::device, pointer, 0, device);
  static_cast<void>(take_recorded_uses(
      pointer, bytes, {}));  // The points are not needed: the release waits for the device.
  release_and_wait(operation, {opened ? close_after_wait : backend::free_device, pointer, device},
                   device);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
