// SPDX-License-Identifier: Apache-2.0
#include <runnel/memory.hpp>

#include "base/check.hpp"
#include "base/process.hpp"
#include "device/device_call.hpp"

namespace runnel::inline RUNNEL_ABI {

PointerInfo pointer_info(const void* pointer) {
  constexpr const char* operation = "ask what a pointer points to";
  detail::enter(operation);
  PointerInfo info{MemoryKind::pageable, Device{0}};
  if (pointer != nullptr) detail::check(backend::pointer_info(info, pointer), operation);
  return info;
}

namespace detail {

size_t bytes_for(size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes))
    throw_error(errc::out_of_memory, "allocate memory",
                "the number of elements times their size does not fit an address");
  return bytes;
}

void* mapped_pointer(void* pointer, Device device) {
  const CurrentDeviceCall call{device.ordinal(), "ask where a device sees pinned memory"};
  void* on_device = nullptr;
  call.check(backend::host_device_pointer(on_device, pointer));
  return on_device;
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
