// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "calls.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

int allocate(void** memory, std::size_t size, Memory kind, int device) {
  if (memory == nullptr) return vendor::invalid_value;
  *memory = nullptr;
  if (size == 0) return vendor::ok;
  *memory = state().blocks.allocate(size, kind, device);
  return *memory != nullptr ? vendor::ok : vendor::out_of_memory;
}

bool is_start_of(void* memory, bool host) {
  const Block block = state().blocks.of(memory);
  if (block.kind == Memory::freed) ++state().misuse.double_free;
  return host ? block.kind == Memory::pinned : block.kind == Memory::device || block.kind == Memory::managed;
}

// Both vendors' plain frees wait for whatever may still use the memory.
int release(Lock& lock, void* memory, bool host) {
  if (memory == nullptr) return vendor::ok;
  if (!is_start_of(memory, host)) return vendor::invalid_value;
  engine().wait_for_device(lock, host ? -1 : state().blocks.of(memory).device);
  return state().blocks.release(memory) ? vendor::ok : vendor::invalid_value;
}

int allocate_pinned(void** memory, std::size_t size) { return allocate(memory, size, Memory::pinned, 0); }

}  // namespace

extern "C" {

#ifdef STANDIN_CUDA
cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned int) {
  return call_outside_captures(Call::makes, [&](Lock&) { return allocate_pinned(memory, size); });
}

cudaError_t cudaFreeHost(void* memory) {
  return call_outside_captures(Call::releases, [&](Lock& lock) { return release(lock, memory, true); });
}
#else
hipError_t hipHostMalloc(void** memory, std::size_t size, unsigned int flags) {
  return call_outside_captures(Call::makes, [&](Lock&) -> int {
    // Flags without this one would give memory that a waiting host may read stale: a bug here, though AMD's runtime allows it.
    if (flags != 0 && (flags & hipHostMallocCoherent) == 0) return vendor::invalid_value;
    return allocate_pinned(memory, size);
  });
}

hipError_t hipHostFree(void* memory) {
  return call_outside_captures(Call::releases, [&](Lock& lock) { return release(lock, memory, true); });
}
#endif

vendor::Error API(HostRegister)(void* memory, std::size_t size, unsigned int) {
  return call_outside_captures(Call::makes, [&](Lock&) -> int {
    if (memory == nullptr || size == 0) return vendor::invalid_value;
    return state().blocks.add_registered(memory, size) ? vendor::ok : vendor::host_memory_already_registered;
  });
}

vendor::Error API(HostUnregister)(void* memory) {
  return call_outside_captures(Call::releases, [&](Lock&) -> int {
    return state().blocks.remove_registered(memory) ? vendor::ok : vendor::host_memory_not_registered;
  });
}

// One address space, as on every device with unified addressing.
vendor::Error API(HostGetDevicePointer)(void** on_device, void* on_host, unsigned int) {
  return call([&](Lock&) -> int {
    if (state().blocks.of(on_host).kind != Memory::pinned) return vendor::invalid_value;
    *on_device = on_host;
    return vendor::ok;
  });
}

vendor::Error API(Malloc)(void** memory, std::size_t size) {
  return call_outside_captures(Call::makes, [&](Lock&) { return allocate(memory, size, Memory::device, this_thread().device); });
}

vendor::Error API(Free)(void* memory) {
  return call_outside_captures(Call::releases, [&](Lock& lock) { return release(lock, memory, false); });
}

vendor::Error API(MallocManaged)(void** memory, std::size_t size, unsigned int) {
  return call_outside_captures(Call::makes, [&](Lock&) { return allocate(memory, size, Memory::managed, this_thread().device); });
}

vendor::Error API(MallocAsync)(void** memory, std::size_t size, vendor::StreamHandle handle) {
  return call(Call::makes, [&](Lock&) -> int {
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return vendor::invalid_handle;
    if (!settings().pools) return vendor::not_supported;
    if (!stream->capturing() && breaks_captures()) return vendor::capture_unsupported;
    return allocate(memory, size, Memory::device, stream->device);
  });
}

vendor::Error API(FreeAsync)(void* memory, vendor::StreamHandle handle) {
  return call(Call::releases, [&](Lock&) -> int {
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return vendor::invalid_handle;
    if (!settings().pools) return vendor::not_supported;
    if (memory == nullptr) return vendor::ok;
    if (!stream->capturing() && breaks_captures()) return vendor::capture_unsupported;
    if (!is_start_of(memory, false)) return vendor::invalid_value;
    auto operation = std::make_shared<Operation>();
    operation->touches.push_back({static_cast<const std::byte*>(memory), state().blocks.of(memory).size});
    operation->run = [memory] {
      const Lock lock{engine().mutex};
      if (!state().blocks.release(memory)) ++state().misuse.double_free;
    };
    engine().submit(*stream, std::move(operation));
    return vendor::ok;
  });
}

// A pool is its device's number and one.
vendor::Error API(DeviceGetDefaultMemPool)(vendor::MemoryPool* pool, int device) {
  return call([&](Lock&) -> int {
    if (device < 0 || device >= settings().devices) return vendor::invalid_device;
    if (!settings().pools) return vendor::not_supported;
    *pool = reinterpret_cast<vendor::MemoryPool>(static_cast<std::uintptr_t>(device) + 1);
    return vendor::ok;
  });
}

vendor::Error API(MemPoolSetAttribute)(vendor::MemoryPool pool, vendor::MemoryPoolAttribute, void* value) {
  return call([&](Lock&) -> int { return pool != nullptr && value != nullptr ? vendor::ok : vendor::invalid_value; });
}

vendor::Error API(MemPoolSetAccess)(vendor::MemoryPool pool, const vendor::MemoryAccess* access, std::size_t count) {
  return call([&](Lock&) -> int {
    if (pool == nullptr || access == nullptr || count != 1) return vendor::invalid_value;
    return access->location.id >= 0 && access->location.id < settings().devices ? vendor::ok : vendor::invalid_device;
  });
}

#ifdef STANDIN_CUDA
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call([&](Lock&) {
    const Block block = state().blocks.of(pointer);
    *attributes = {};
    attributes->type = block.kind == Memory::pinned    ? cudaMemoryTypeHost
                       : block.kind == Memory::device  ? cudaMemoryTypeDevice
                       : block.kind == Memory::managed ? cudaMemoryTypeManaged
                                                       : cudaMemoryTypeUnregistered;
    attributes->device = block.device;
    return vendor::ok;
  });
}
#else
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  return call([&](Lock&) {
    const Block block = state().blocks.of(pointer);
    if (block.kind == Memory::pageable || block.kind == Memory::freed) return vendor::invalid_value;
    *attributes = {};
#if HIP_VERSION >= 60000000
    attributes->type = block.kind == Memory::pinned ? hipMemoryTypeHost : hipMemoryTypeDevice;
#else
    attributes->memoryType = block.kind == Memory::pinned ? hipMemoryTypeHost : hipMemoryTypeDevice;
#endif
    attributes->isManaged = block.kind == Memory::managed ? 1 : 0;
    attributes->device = block.device;
    return vendor::ok;
  });
}
#endif

}  // extern "C"
