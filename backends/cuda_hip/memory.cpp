// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/max_devices.hpp"
#include "base/relaxed_capture.hpp"
#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

status malloc_host(void*& memory, std::size_t bytes) noexcept {
  return rt::malloc_host(&memory, bytes, rt::malloc_host_flags);
}

status malloc_host_write_combined(void*& memory, std::size_t bytes) noexcept {
  return rt::malloc_host(&memory, bytes, rt::malloc_host_flags | rt::malloc_host_write_combined);
}

status free_host(void* memory) noexcept { return rt::free_host(memory); }

// Observed with CUDA 13.0 on an H100. HIP's documentation says that hipHostFree waits.
bool frees_wait_for_devices() noexcept { return true; }

bool prefers_registered_pages() noexcept { return rt::prefers_registered_pages; }

status register_host(void* memory, std::size_t bytes) noexcept {
  return rt::host_register(memory, bytes, rt::host_register_flags);
}

status register_host_read_only(void* memory, std::size_t bytes) noexcept {
  return rt::host_register(memory, bytes, rt::host_register_flags | rt::host_register_read_only);
}

status unregister_host(void* memory) noexcept { return rt::host_unregister(memory); }

status host_device_pointer(void*& on_device, void* on_host) noexcept {
  return rt::host_get_device_pointer(&on_device, on_host, 0);
}

status malloc_device(void*& memory, std::size_t bytes) noexcept {
  return rt::malloc_device(&memory, bytes);
}

status free_device(void* memory) noexcept { return rt::free_device(memory); }

// The runtimes export plain allocations, but not memory of a pool.
status malloc_exportable(void*& memory, std::size_t bytes) noexcept {
  return malloc_device(memory, bytes);
}

static_assert(sizeof(rt::ipc_memory_handle) == sizeof(IpcBytes));

status export_memory(IpcBytes& handle, void* memory) noexcept {
  rt::ipc_memory_handle native{};
  const status s = rt::ipc_get_memory_handle(&native, memory);
  std::memcpy(&handle, &native, sizeof handle);
  return s;
}

status open_memory(void*& memory, const IpcBytes& handle) noexcept {
  rt::ipc_memory_handle native{};
  std::memcpy(&native, &handle, sizeof handle);
  return rt::ipc_open_memory_handle(&memory, native, rt::ipc_open_flags);
}

status close_memory(void* memory) noexcept { return rt::ipc_close_memory_handle(memory); }

status malloc_managed(void*& memory, std::size_t bytes) noexcept {
  return rt::malloc_managed(&memory, bytes, rt::malloc_managed_flags);
}

status prefetch_async(const void* memory, std::size_t bytes, int place,
                      native::stream stream) noexcept {
  return rt::prefetch_async(memory, bytes, place, stream);
}

// All runtimes use these numbers for the kinds of advice.
status advise(const void* memory, std::size_t bytes, MemoryAdvice advice, int place) noexcept {
  return rt::advise(memory, bytes, static_cast<int>(advice), place);
}

namespace {

/// The library's own pool of each device. It lives as long as the process.
constinit std::atomic<rt::memory_pool> pools[detail::max_devices]{};

status set_threshold(rt::memory_pool pool, std::uint64_t bytes) noexcept {
  return rt::memory_pool_set_attribute(pool, rt::memory_pool_release_threshold, &bytes);
}

/// Makes the pool when it is first needed. Requires: the device is current. The pool keeps half of
/// the device's memory: all of it would leave none for graphs, for which the driver takes nothing
/// from pools.
status own_pool(rt::memory_pool& pool, int device) noexcept {
  pool = pools[device].load(std::memory_order_acquire);
  if (pool != nullptr) return ok;
  const detail::RelaxedCapture relaxed;  // The stream may be captured by other code.
  std::size_t free = 0, total = 0;
  status s = rt::memory_get_info(&free, &total);
  rt::memory_pool made{};
  if (s == ok) s = rt::memory_pool_create(&made, device);
  if (s != ok) return s;
  s = set_threshold(made, total / 2);
  if (s == ok && pools[device].compare_exchange_strong(pool, made)) {
    pool = made;
  } else {
    static_cast<void>(rt::memory_pool_destroy(made));
  }
  return s;
}

/// Reads from the runtime how many bytes the library's pool of the device holds, and how many of
/// them are in use. Both are 0 before the pool is made.
status ask_pool(std::uint64_t& held, std::uint64_t& used, int device) noexcept {
  held = used = 0;
  rt::memory_pool const pool = pools[device].load(std::memory_order_acquire);
  if (pool == nullptr) return ok;
  const status s = rt::memory_pool_get_attribute(pool, rt::memory_pool_reserved, &held);
  return s != ok ? s : rt::memory_pool_get_attribute(pool, rt::memory_pool_used, &used);
}

}  // namespace

status malloc_async(void*& memory, std::size_t bytes, int device, native::stream stream) noexcept {
  rt::memory_pool pool{};
  const status s = own_pool(pool, device);
  return s != ok ? s : rt::malloc_from_pool(&memory, bytes, pool, stream);
}

status free_async(void* memory, native::stream stream) noexcept {
  return rt::free_async(memory, stream);
}

status memory_info(std::size_t& free, std::size_t& total, int device) noexcept {
  std::uint64_t held = 0, used = 0;
  status s = ask_pool(held, used, device);
  if (s == ok) s = rt::memory_get_info(&free, &total);
  // Other threads may have allocated between the two answers about the pool.
  if (s == ok && held > used) free += held - used;
  return s;
}

status set_release_threshold(int device, std::size_t bytes) noexcept {
  rt::memory_pool pool{};
  const status s = own_pool(pool, device);
  return s != ok ? s : set_threshold(pool, bytes);
}

status pool_reserved(int device, std::size_t& bytes) noexcept {
  std::uint64_t held = 0, used = 0;
  const status s = ask_pool(held, used, device);
  bytes = held;
  return s;
}

status trim_pool(int device) noexcept {
  rt::memory_pool const pool = pools[device].load(std::memory_order_acquire);
  return pool == nullptr ? ok : rt::memory_pool_trim(pool, 0);
}

// The default pool may have memory of other code, which the library copies, too.
status allow_pool_access(int device, int peer, bool allow) noexcept {
  rt::memory_pool own{}, other{};
  status s = own_pool(own, device);
  if (s == ok) s = rt::device_get_default_memory_pool(&other, device);
  if (s == ok) s = rt::memory_pool_allow(own, peer, allow);
  return s != ok ? s : rt::memory_pool_allow(other, peer, allow);
}

status pointer_info(PointerInfo& info, const void* pointer) noexcept {
  rt::memory_type type{};
  int device = 0;
  const status s = rt::pointer_get_attributes(&type, &device, pointer);
  if (s != ok) return s;
  if (type == rt::memory_device) {
    info = {MemoryKind::device, Device{device}};
  } else if (type == rt::memory_managed) {
    info = {MemoryKind::managed, Device{device}};
  } else {
    info = {type == rt::memory_host ? MemoryKind::pinned : MemoryKind::pageable, Device{0}};
  }
  return ok;
}

}  // namespace runnel::inline RUNNEL_ABI::backend
