// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "calls.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

int allocate(void** memory, size_t size, Memory kind, int device) {
  if (memory == nullptr) return invalid_value;
  *memory = nullptr;
  if (size == 0) return ok;
  *memory = state().blocks.allocate(size, kind, device);
  return *memory != nullptr ? ok : out_of_memory;
}

bool is_start_of(void* memory, bool host) {
  const Block block = state().blocks.of(memory);
  const bool freed = block.kind == Memory::freed || !block.in_use();
  if (freed) ++state().misuse.double_free;
  if (freed) return false;
  return host ? block.kind == Memory::pinned
              : block.kind == Memory::device || block.kind == Memory::managed;
}

/// Waits for all work of a device, or of all. Meanwhile other threads' calls do not begin: seen on
/// an H100 (CUDA 13.0).
void wait_and_hold_others(Lock& lock, int device) {
  State& now = state();
  now.holder = std::this_thread::get_id();
  engine().wait_for_device(lock, device);
  now.holder = {};
  engine().done.notify_all();
}

// The plain frees of both vendors wait for all work that may still use the memory.
int release(Lock& lock, void* memory, bool host) {
  if (memory == nullptr) return ok;
  if (!is_start_of(memory, host)) return invalid_value;
  wait_and_hold_others(lock, host ? -1 : state().blocks.of(memory).device);
  return state().blocks.release(memory) ? ok : invalid_value;
}

int allocate_pinned(void** memory, size_t size) {
  return allocate(memory, size, Memory::pinned, 0);
}

/// Allocates in stream order. Without enough free memory it reuses memory whose free is pending:
/// first of its own stream, whose frees run before anyway, then of other streams, whose frees this
/// stream then waits for. Seen on an H200 (CUDA 13.0).
int allocate_in_order(void** memory, size_t size, Stream& stream, Pool& pool) {
  if (memory == nullptr) return invalid_value;
  State& now = state();
  size_t counted = 0;
  for (const PendingFree& free : now.pending_frees)
    if (free.device == stream.device) counted += free.counted;
  const size_t used = now.blocks.used(stream.device) - counted;
  size_t missing = used + size > settings().memory ? used + size - settings().memory : 0;
  std::vector<PendingFree*> chosen;
  size_t found = 0;
  for (const bool own : {true, false})
    for (PendingFree& free : now.pending_frees)
      if (free.device == stream.device && (free.stream == stream.id) == own && free.open > 0 &&
          found < missing) {
        chosen.push_back(&free);
        found += free.open;
      }
  if (size > settings().memory || found < missing) return *memory = nullptr, out_of_memory;
  for (PendingFree* const free : chosen) {
    const size_t taken = std::min(free->open, missing);
    free->open -= taken;
    free->counted += taken;
    counted += taken;
    missing -= taken;
    if (free->stream != stream.id) engine().submit(stream, operation_of(), {free->operation});
  }
  *memory = size == 0 ? nullptr
                      : now.blocks.allocate(size, Memory::device, stream.device, counted, &pool);
  return *memory != nullptr || size == 0 ? ok : out_of_memory;
}

/// Allocates in a capture. The address is known at once, and belongs to the graph.
int allocate_in_graph(void** memory, size_t size, Stream& stream) {
  if (memory == nullptr) return invalid_value;
  *memory = size == 0 ? nullptr : state().blocks.reserve(size, stream.device);
  if (*memory == nullptr) return size == 0 ? ok : out_of_memory;
  engine().submit(stream, operation_of({.kind = Kind::allocation, .memory = *memory}));
  return ok;
}

int allocate_from(Pool* pool, void** memory, size_t size, Stream& stream) {
  if (!settings().pools) return not_supported;
  if (const Code code = refusal(stream)) return code;
  if (pool == nullptr || pool->device != stream.device) return invalid_value;
  if (stream.capturing() && vendor::captures_allocations)
    return allocate_in_graph(memory, size, stream);
  if (breaks_captures()) return capture_unsupported;
  if (stream.thread_default) stream.has_allocated = true;
  return allocate_in_order(memory, size, stream, *pool);
}

/// The free of a block, as an operation.
OperationPtr make_free(void* memory) {
  const auto run = [memory] {
    const Lock lock{engine().mutex};
    if (!state().blocks.release(memory)) ++state().misuse.double_free;
    std::erase_if(state().pending_frees,
                  [&](const PendingFree& free) { return free.operation->memory == memory; });
  };
  return operation_of(
      {.kind = Kind::free,
       .run = run,
       .touches = {{static_cast<const byte*>(memory), state().blocks.of(memory).size}},
       .memory = memory});
}

/// In a capture only memory of a graph can be freed, and only once.
int free_in_graph(void* memory, Stream& stream) {
  if (!state().blocks.of(memory).of_graph) return invalid_value;
  for (const GraphNode& node : stream.capture->graph->nodes)
    if (node.work.kind == Kind::free && node.work.memory == memory) return invalid_value;
  engine().submit(stream, make_free(memory));
  return ok;
}

#if defined STANDIN_CUDA && CUDART_VERSION >= 13000
int number_of(cudaMemLocation place) {
  return place.type == cudaMemLocationTypeHost ? -1 : place.id;
}
#endif

/// A place is a device or, as -1, the host.
int require_managed(const void* memory, size_t size, int place) {
  if (place < -1 || place >= settings().devices) return invalid_device;
  if (memory == nullptr || size == 0) return invalid_value;
  for (const size_t at : {size_t{0}, size - 1})
    if (state().blocks.of(static_cast<const byte*>(memory) + at).kind != Memory::managed)
      return invalid_value;
  return ok;
}

/// Pages do not move here. In a capture the runtimes refuse the call, and break the capture.
Error prefetch(const char* name, const void* memory, size_t size, int place, StreamHandle handle) {
  const auto body = [=](Stream& stream) {
    if (stream.capturing()) return break_capture(*stream.capture, capture_unsupported);
    const int code = require_managed(memory, size, place);
    if (code == ok) engine().submit(stream, operation_of());
    return code;
  };
  return call(work_on(handle, body), name);
}

/// HIP's stand-in is AMD's runtime, which has no such flag.
bool is_for_reading([[maybe_unused]] unsigned int flags) {
#ifdef STANDIN_CUDA
  return (flags & cudaHostRegisterReadOnly) != 0;
#else
  return false;
#endif
}

/// Whether the process may write each page, as the system's list of mappings says.
bool can_all_be_written(const void* memory, size_t size) {
  uintptr_t at = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t end = at + size;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; at < end && std::getline(maps, line);) {
    unsigned long first = 0, last = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, rights) != 3 || last <= at)
      continue;
    if (first > at || rights[1] != 'w') return false;
    at = last;
  }
  return at >= end;
}

}  // namespace

extern "C" {

#ifdef STANDIN_CUDA
cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned int) {
  return call_outside_captures(Call::makes, [&] { return allocate_pinned(memory, size); });
}
#define FREE_HOST cudaFreeHost
#else
hipError_t hipHostMalloc(void** memory, size_t size, unsigned int flags) {
  return call_outside_captures(Call::makes, [&] {
    // Without this flag, a host that waits in a loop may read stale values. AMD's runtime allows
    // that, but here it would be a bug.
    if (flags != 0 && (flags & hipHostMallocCoherent) == 0) return invalid_value;
    return allocate_pinned(memory, size);
  });
}
#define FREE_HOST hipHostFree
#endif

Error FREE_HOST(void* memory) {
  return call_outside_captures(Call::releases,
                               [&](Lock& lock) { return release(lock, memory, true); });
}

Error API(HostRegister)(void* memory, size_t size, unsigned int flags) {
  return call_outside_captures(Call::makes, [&] {
    if (memory == nullptr || size == 0) return invalid_value;
    const bool read_only = is_for_reading(flags);
    if (read_only && !settings().read_only_registrations) return not_supported;
    if (!read_only && !can_all_be_written(memory, size)) return invalid_value;
    if (size > settings().memory || state().blocks.used(-1) > settings().memory - size)
      return out_of_memory;
    return state().blocks.add_registered(memory, size) ? ok : host_memory_already_registered;
  });
}

Error API(HostUnregister)(void* memory) {
  // Seen on an H200: it waits for all work of the devices, as the frees do.
  return call_outside_captures(Call::releases, [&](Lock& lock) {
    const Block block = state().blocks.of(memory);
    if (!block.registered || !block.is_start) return host_memory_not_registered;
    wait_and_hold_others(lock, -1);
    return state().blocks.remove_registered(memory) ? ok : host_memory_not_registered;
  });
}

// Host and device addresses are equal, as on every device with unified addressing.
Error API(HostGetDevicePointer)(void** on_device, void* on_host, unsigned int) {
  return call([&] {
    if (state().blocks.of(on_host).kind != Memory::pinned) return invalid_value;
    *on_device = on_host;
    return ok;
  });
}

Error API(Malloc)(void** memory, size_t size) {
  return call_outside_captures(Call::makes, [&] {
    if (memory == nullptr) return invalid_value;
    *memory = size == 0 ? nullptr : state().blocks.allocate_shared(size, this_thread().device);
    return *memory != nullptr || size == 0 ? ok : out_of_memory;
  });
}

Error API(Free)(void* memory) {
  return call_outside_captures(Call::releases,
                               [&](Lock& lock) { return release(lock, memory, false); });
}

Error API(MallocManaged)(void** memory, size_t size, unsigned int) {
  return call_outside_captures(Call::makes, [&](Lock& lock) {
    const int code = allocate(memory, size, Memory::managed, this_thread().device);
    // Seen on an H200: with too little memory, it waits for the device before it says so.
    if (code == out_of_memory) engine().wait_for_device(lock, -1);
    return code;
  });
}

#if defined STANDIN_CUDA && CUDART_VERSION >= 13000
cudaError_t cudaMemPrefetchAsync(const void* memory, size_t size, cudaMemLocation place,
                                 unsigned int, cudaStream_t stream) {
  return prefetch(__func__, memory, size, number_of(place), stream);
}

cudaError_t cudaMemAdvise(const void* memory, size_t size, cudaMemoryAdvise,
                          cudaMemLocation place) {
  return call_outside_captures(Call::plain,
                               [&] { return require_managed(memory, size, number_of(place)); });
}
#else
Error API(MemPrefetchAsync)(const void* memory, size_t size, int place, StreamHandle stream) {
  return prefetch(__func__, memory, size, place, stream);
}

Error API(MemAdvise)(const void* memory, size_t size, vendor::MemoryAdvice, int place) {
  return call_outside_captures(Call::plain, [&] { return require_managed(memory, size, place); });
}
#endif

Error API(MallocFromPoolAsync)(void** memory, size_t size, vendor::MemoryPool pool,
                               StreamHandle handle) {
  return call(Call::makes, on_stream(handle, [=](Stream& stream) {
                return allocate_from(state().pool(pool), memory, size, stream);
              }));
}

Error API(MallocAsync)(void** memory, size_t size, StreamHandle handle) {
  return call(Call::makes, on_stream(handle, [=](Stream& stream) {
                return allocate_from(state().pool(number_of_device(stream.device)), memory, size,
                                     stream);
              }));
}

Error API(FreeAsync)(void* memory, StreamHandle handle) {
  return call(
      Call::releases, on_stream(handle, [=](Stream& stream) {
        if (!settings().pools) return not_supported;
        if (memory == nullptr) return ok;
        if (const Code code = refusal(stream)) return code;
        if (stream.capturing() && vendor::captures_allocations)
          return free_in_graph(memory, stream);
        if (breaks_captures()) return capture_unsupported;
        if (!is_start_of(memory, false)) return invalid_value;
        const Block block = state().blocks.of(memory);
        const OperationPtr operation = make_free(memory);
        if (!block.of_graph)
          state().pending_frees.push_back({operation, stream.id, stream.device, block.size, 0});
        state().blocks.set_kept(memory, false);
        engine().submit(stream, operation);
        return ok;
      }));
}

Error API(DeviceGetDefaultMemPool)(vendor::MemoryPool* pool, int device) {
  return call([&] {
    if (!exists(device)) return invalid_device;
    if (!settings().pools) return not_supported;
    *pool = number_of_device(device);
    return ok;
  });
}

// Seen on an H200 (CUDA 13.0): it invalidates captures.
Error API(MemPoolCreate)(vendor::MemoryPool* pool, const vendor::MemoryPoolProperties* properties) {
  return call([&] {
    if (pool == nullptr || properties == nullptr) return invalid_value;
    const int device = properties->location.id;
    if (!exists(device)) return invalid_device;
    if (!settings().pools) return not_supported;
    if (breaks_captures()) return capture_unsupported;
    const uintptr_t number = 0x60000 + state().pools.size();
    state().pools.emplace(number, Pool{device});
    *pool = Number{number};
    return ok;
  });
}

// Its memory is in use no more when its blocks are freed.
Error API(MemPoolDestroy)(vendor::MemoryPool handle) {
  return call([&] { return state().pool(handle) != nullptr ? ok : invalid_value; });
}

Error API(MemPoolSetAttribute)(vendor::MemoryPool handle, vendor::MemoryPoolAttribute attribute,
                               void* value) {
  return call([&] {
    Pool* const pool = state().pool(handle);
    if (pool == nullptr || value == nullptr || attribute != vendor::pool_threshold)
      return invalid_value;
    pool->threshold = *static_cast<const uint64_t*>(value);
    return ok;
  });
}

Error API(MemPoolGetAttribute)(vendor::MemoryPool handle, vendor::MemoryPoolAttribute attribute,
                               void* value) {
  return call([&] {
    const Pool* const pool = state().pool(handle);
    if (pool == nullptr || value == nullptr) return invalid_value;
    if (breaks_captures()) return capture_unsupported;  // seen on an H200, CUDA 13.0
    *static_cast<uint64_t*>(value) = attribute == vendor::pool_used ? pool->used : pool->held;
    return ok;
  });
}

Error API(MemPoolTrimTo)(vendor::MemoryPool handle, size_t bytes) {
  return call([&] {
    Pool* const pool = state().pool(handle);
    if (pool == nullptr) return invalid_value;
    // seen on an H100, driver 580, CUDA 13.0
    if (breaks_captures()) return capture_unsupported;
    pool->held = std::max(pool->used, std::min<uint64_t>(pool->held, bytes));
    return ok;
  });
}

Error API(MemPoolSetAccess)(vendor::MemoryPool pool, const vendor::MemoryAccess* access,
                            size_t count) {
  return call([&] {
    Pool* const of = state().pool(pool);
    if (of == nullptr || access == nullptr || count != 1) return invalid_value;
    if (breaks_captures()) return capture_unsupported;
    const int device = access->location.id;
    if (access->flags == 0)
      of->peers.erase(device);
    else
      of->peers.insert(device);
    return exists(device) ? ok : invalid_device;
  });
}

#ifdef STANDIN_CUDA
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call([&] {
    const Block block = state().blocks.of(pointer);
    *attributes = {};
    attributes->type = block.kind == Memory::pinned    ? cudaMemoryTypeHost
                       : block.kind == Memory::device  ? cudaMemoryTypeDevice
                       : block.kind == Memory::managed ? cudaMemoryTypeManaged
                                                       : cudaMemoryTypeUnregistered;
    attributes->device = block.device;
    return ok;
  });
}
#else
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  return call([&] {
    const Block block = state().blocks.of(pointer);
    if (block.kind == Memory::pageable || block.kind == Memory::freed) return invalid_value;
    *attributes = {};
#if HIP_VERSION >= 60000000
    attributes->type = block.kind == Memory::pinned ? hipMemoryTypeHost : hipMemoryTypeDevice;
#else
    attributes->memoryType = block.kind == Memory::pinned ? hipMemoryTypeHost : hipMemoryTypeDevice;
#endif
    attributes->isManaged = block.kind == Memory::managed ? 1 : 0;
    attributes->device = block.device;
    return ok;
  });
}
#endif

}  // extern "C"
