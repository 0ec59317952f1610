// SPDX-License-Identifier: Apache-2.0
/// The names that ../cuda_hip uses, for HIP 5.2 to 7, on AMD's runtime and (hip_platform=nvidia) on
/// CUDA's. cuda/runtime.hpp has the same names in the same order.
#pragma once

#include <hip/hip_runtime_api.h>
#include <runnel/native.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <type_traits>

#ifdef __HIP_PLATFORM_NVIDIA__
#include "../cuda/driver_functions.hpp"
#include "../cuda/graph_functions.hpp"
#include "../cuda/green_contexts.hpp"
#include "../cuda/managed_memory.hpp"
#include "backend.hpp"
#include "translated.hpp"
#else
#include "captures.hpp"
#include "masks.hpp"
#endif

namespace runnel::inline RUNNEL_ABI::rt {

static_assert(std::is_same_v<native::stream, hipStream_t>);
static_assert(std::is_same_v<native::event, hipEvent_t>);
static_assert(std::is_same_v<native::graph, hipGraph_t>);
static_assert(std::is_same_v<native::graph_node, hipGraphNode_t>);
static_assert(std::is_same_v<native::executable_graph, hipGraphExec_t>);

// Errors
using error = hipError_t;
inline constexpr error not_ready = hipErrorNotReady;
inline constexpr error peer_access_already_enabled = hipErrorPeerAccessAlreadyEnabled;
inline constexpr error peer_access_not_enabled = hipErrorPeerAccessNotEnabled;
inline constexpr auto error_name = &hipGetErrorName;
inline constexpr auto error_text = &hipGetErrorString;
inline constexpr auto peek_at_last_error = &hipPeekAtLastError;
inline constexpr auto get_last_error = &hipGetLastError;

// Devices
#ifdef __HIP_PLATFORM_NVIDIA__
// The header translates only some attributes (5.7: neither copy engines nor stream memory
// operations), so CUDA's own call is used.
using attribute = cudaDeviceAttr;
inline constexpr attribute attribute_compute_capability_major = cudaDevAttrComputeCapabilityMajor;
inline constexpr attribute attribute_compute_capability_minor = cudaDevAttrComputeCapabilityMinor;
inline constexpr attribute attribute_async_engine_count = cudaDevAttrAsyncEngineCount;
inline constexpr attribute attribute_multiprocessor_count = cudaDevAttrMultiProcessorCount;
inline constexpr attribute attribute_can_map_host_memory = cudaDevAttrCanMapHostMemory;
inline constexpr attribute attribute_can_pin_read_only_memory =
    cudaDevAttrHostRegisterReadOnlySupported;
inline constexpr attribute attribute_pageable_memory_access = cudaDevAttrPageableMemoryAccess;
inline constexpr attribute attribute_pageable_memory_access_uses_host_page_tables =
    cudaDevAttrPageableMemoryAccessUsesHostPageTables;
// See cuda/runtime.hpp.
inline constexpr attribute attribute_stream_memory_operations = static_cast<attribute>(122);
inline constexpr attribute attribute_memory_pools = cudaDevAttrMemoryPoolsSupported;
inline constexpr const char* hardware_queues_variable = "CUDA_DEVICE_MAX_CONNECTIONS";
inline constexpr int hardware_queues_default = 8;
inline constexpr const char* container_options = "--gpus all";
inline constexpr const char* hiding_variable = "CUDA_VISIBLE_DEVICES";
#else
using attribute = hipDeviceAttribute_t;
inline constexpr attribute attribute_compute_capability_major =
    hipDeviceAttributeComputeCapabilityMajor;
inline constexpr attribute attribute_compute_capability_minor =
    hipDeviceAttributeComputeCapabilityMinor;
inline constexpr attribute attribute_async_engine_count = hipDeviceAttributeAsyncEngineCount;
inline constexpr attribute attribute_multiprocessor_count = hipDeviceAttributeMultiprocessorCount;
inline constexpr attribute attribute_can_map_host_memory = hipDeviceAttributeCanMapHostMemory;
// Unused: registers_read_only_memory is false.
inline constexpr attribute attribute_can_pin_read_only_memory = attribute_can_map_host_memory;
inline constexpr attribute attribute_pageable_memory_access =
    hipDeviceAttributePageableMemoryAccess;
inline constexpr attribute attribute_pageable_memory_access_uses_host_page_tables =
    hipDeviceAttributePageableMemoryAccessUsesHostPageTables;
inline constexpr attribute attribute_stream_memory_operations =
    hipDeviceAttributeCanUseStreamWaitValue;
inline constexpr attribute attribute_memory_pools = hipDeviceAttributeMemoryPoolsSupported;
inline constexpr const char* hardware_queues_variable = "GPU_MAX_HW_QUEUES";
inline constexpr int hardware_queues_default = 4;
inline constexpr const char* container_options = "--device /dev/kfd --device /dev/dri";
inline constexpr const char* hiding_variable = "HIP_VISIBLE_DEVICES";
#endif
inline constexpr auto get_device_count = &hipGetDeviceCount;
inline constexpr auto get_device = &hipGetDevice;
inline constexpr auto set_device = &hipSetDevice;
inline error device_name(char* text, std::size_t size, int device) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  // hipDeviceGetName is a driver function there, and the library does not link libcuda.
  hipDeviceProp_t properties{};
  const error e = hipGetDeviceProperties(&properties, device);
  if (e == hipSuccess) std::snprintf(text, size, "%s", properties.name);
  return e;
#else
  return hipDeviceGetName(text, static_cast<int>(size), device);
#endif
}
inline error device_uuid(unsigned char (&bytes)[16], int device) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  // HIP's properties have no uuid (5.2), and hipDeviceGetUuid is a driver function there.
  cudaDeviceProp properties{};
  const error e = hipCUDAErrorTohipError(cudaGetDeviceProperties(&properties, device));
  std::memcpy(bytes, properties.uuid.bytes, sizeof bytes);
#else
  hipUUID uuid{};
  const error e = hipDeviceGetUuid(&uuid, device);
  std::memcpy(bytes, uuid.bytes, sizeof bytes);
#endif
  return e;
}
inline error device_pci_bus_id(char* text, int size, int device) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  return hipCUDAErrorTohipError(cudaDeviceGetPCIBusId(text, size, device));
#else
  return hipDeviceGetPCIBusId(text, size, device);
#endif
}
// HIP has no name for the mask of the bits below
inline constexpr unsigned int host_wait_flags = 7;
inline constexpr unsigned int host_wait_automatic = hipDeviceScheduleAuto;
inline constexpr unsigned int host_wait_spin = hipDeviceScheduleSpin;
inline constexpr unsigned int host_wait_yield = hipDeviceScheduleYield;
inline constexpr unsigned int host_wait_block = hipDeviceScheduleBlockingSync;
inline error get_device_flags(unsigned int* flags) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  return hipCUDAErrorTohipError(cudaGetDeviceFlags(flags));  // The header has no wrapper (5.2).
#else
  return hipGetDeviceFlags(flags);
#endif
}
inline constexpr auto set_device_flags = &hipSetDeviceFlags;
inline error device_get_attribute(int* value, attribute which, int device) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  return hipCUDAErrorTohipError(cudaDeviceGetAttribute(value, which, device));
#else
  // HIP 5 returns "invalid value" for attributes that its header calls "Cuda only", such as copy
  // engines. That is 0 here, not an error.
  const error pending = hipPeekAtLastError();
  const error e = hipDeviceGetAttribute(value, which, device);
  if (e != hipErrorInvalidValue) return e;
  if (pending == hipSuccess) static_cast<void>(hipGetLastError());
  *value = 0;
  return hipSuccess;
#endif
}
inline constexpr auto memory_get_info = &hipMemGetInfo;
inline constexpr auto get_stream_priority_range = &hipDeviceGetStreamPriorityRange;
inline constexpr auto device_synchronize = &hipDeviceSynchronize;
inline constexpr auto can_access_peer = &hipDeviceCanAccessPeer;
inline constexpr auto enable_peer_access = &hipDeviceEnablePeerAccess;
inline constexpr auto disable_peer_access = &hipDeviceDisablePeerAccess;
inline constexpr auto runtime_get_version = &hipRuntimeGetVersion;
inline constexpr auto driver_get_version = &hipDriverGetVersion;

// Streams
inline constexpr unsigned int stream_blocking = hipStreamDefault;
inline constexpr unsigned int stream_non_blocking = hipStreamNonBlocking;
inline native::stream per_thread_stream() noexcept { return hipStreamPerThread; }
inline constexpr auto stream_create = &hipStreamCreateWithPriority;
#ifdef __HIP_PLATFORM_NVIDIA__
inline constexpr auto can_divide_devices = translated<&cuda_can_divide_devices>;
inline constexpr auto device_divide = translated<&cuda_device_divide>;
inline constexpr auto stream_create_in = translated<&cuda_stream_create_in>;
#else
inline error can_divide_devices(int* can) noexcept { return *can = 1, hipSuccess; }
inline constexpr auto device_divide = &hip_device_divide;
inline constexpr auto stream_create_in = &hip_stream_create_in;
#endif
inline constexpr auto stream_destroy = &hipStreamDestroy;
inline constexpr auto stream_query = &hipStreamQuery;
inline constexpr auto stream_synchronize = &hipStreamSynchronize;
inline constexpr auto stream_get_priority = &hipStreamGetPriority;
inline constexpr auto stream_get_flags = &hipStreamGetFlags;
inline error stream_get_device(native::stream stream, int* device) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  return hipCUDAErrorTohipError(cuda_stream_device(stream, device));  // The header has no wrapper.
#elif HIP_VERSION >= 60000000
  return hipStreamGetDevice(stream, device);
#else
  // 5.2 has only this call, which is meant for profilers. It returns -1 for an invalid stream.
  *device = hipGetStreamDeviceId(stream);
  return *device < 0 ? hipErrorInvalidHandle : hipSuccess;
#endif
}
inline error stream_is_capturing(native::stream stream, bool* capturing) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;  // 5.2's header has no wrapper.
  const error e = hipCUDAErrorTohipError(cudaStreamIsCapturing(stream, &capture));
  *capturing = capture != cudaStreamCaptureStatusNone;
#else
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  const error e = hipStreamIsCapturing(stream, &capture);
  *capturing = capture != hipStreamCaptureStatusNone;
#endif
  return e;
}
#ifdef __HIP_PLATFORM_NVIDIA__
using capture_mode = cudaStreamCaptureMode;  // The header has neither the type nor a wrapper (5.2).
inline constexpr capture_mode capture_mode_global = cudaStreamCaptureModeGlobal;
inline constexpr capture_mode capture_mode_own_only = cudaStreamCaptureModeThreadLocal;
inline constexpr capture_mode capture_mode_relaxed = cudaStreamCaptureModeRelaxed;
inline error exchange_capture_mode(capture_mode* mode) noexcept {
  return hipCUDAErrorTohipError(cudaThreadExchangeStreamCaptureMode(mode));
}
#else
using capture_mode = hipStreamCaptureMode;
inline constexpr capture_mode capture_mode_global = hipStreamCaptureModeGlobal;
inline constexpr capture_mode capture_mode_own_only = hipStreamCaptureModeThreadLocal;
inline constexpr capture_mode capture_mode_relaxed = hipStreamCaptureModeRelaxed;
inline constexpr auto exchange_capture_mode = &hipThreadExchangeStreamCaptureMode;
#endif
#ifdef __HIP_PLATFORM_NVIDIA__
// The header translates only some names for captures and graphs, and some only under nvcc (5.2 to
// 5.7). So CUDA's own names are used.
inline constexpr auto stream_capture_number = translated<&cuda_capture_number>;
inline constexpr auto stream_begin_capture = translated<&cudaStreamBeginCapture>;
inline constexpr auto stream_end_capture = translated<&cudaStreamEndCapture>;
#else
inline error stream_capture_number(native::stream stream, unsigned long long* number) noexcept {
  *number = 0;
#if HIP_VERSION >= 50500000
  if (stream == nullptr) return hipSuccess;  // as in hip_find_capture()
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  unsigned long long found = 0;
  const error e = hipStreamGetCaptureInfo(stream, &capture, &found);
  if (capture == hipStreamCaptureStatusActive) *number = found;
  return e;
#else
  // Before 5.5 the runtime gave a different number to each stream of a capture. All these streams
  // have the same graph, so the address of the graph is used.
  Captured capture;
  const error e = hip_find_capture(stream, capture);
  *number = reinterpret_cast<std::uintptr_t>(capture.graph);
  return e;
#endif
}
inline constexpr auto stream_begin_capture = &hipStreamBeginCapture;
inline constexpr auto stream_end_capture = &end_capture;
#endif
inline constexpr auto stream_wait_event = &hipStreamWaitEvent;
#ifdef __HIP_PLATFORM_NVIDIA__
// The header declares hipLaunchHostFunc under nvcc only (5.2 to 5.7).
inline error launch_host_func(native::stream stream, void (*function)(void*), void* data) noexcept {
  return hipCUDAErrorTohipError(cudaLaunchHostFunc(stream, function, data));
}
#elif HIP_VERSION < 50300000
// HIP 5.2 declares hipLaunchHostFunc, but its library lacks it. The older call passes two more
// arguments to the function, and cannot be captured. So in a capture the node is added manually.
inline error launch_host_func(native::stream stream, void (*function)(void*), void* data) noexcept {
  Captured capture;
  error e = hip_find_capture(stream, capture);
  if (e != hipSuccess) return e;
  if (capture.graph != nullptr) {
    const hipHostNodeParams what{function, data};
    native::graph_node node = nullptr;
    e = hipGraphAddHostNode(&node, capture.graph, capture.before, capture.count, &what);
    if (e != hipSuccess) return e;
    e = hipStreamUpdateCaptureDependencies(stream, &node, 1, hipStreamSetCaptureDependencies);
    if (e != hipSuccess) static_cast<void>(hipGraphDestroyNode(node));
    return e;
  }
  struct CallbackData {
    void (*function)(void*);
    void* data;
  };
  auto* const call = new (std::nothrow) CallbackData{function, data};
  if (call == nullptr) return hipErrorOutOfMemory;
  const auto run = [](native::stream, error, void* given) {
    const CallbackData run_now = *static_cast<CallbackData*>(given);
    delete static_cast<CallbackData*>(given);
    run_now.function(run_now.data);
  };
  e = hipStreamAddCallback(stream, run, call, 0);
  if (e != hipSuccess) delete call;
  return e;
}
#else
inline constexpr auto launch_host_func = &hipLaunchHostFunc;
#endif
#ifdef __HIP_PLATFORM_NVIDIA__
// The header declares hipStreamWaitValue32 and the like under nvcc only, so the CUDA driver's
// functions are used.
inline constexpr bool values_in_pinned_memory = true;
inline error stream_wait_value(native::stream stream, std::uint32_t* place,
                               std::uint32_t value) noexcept {
  return hipCUDAErrorTohipError(cuda_wait_value(stream, place, value));
}
inline error stream_write_value(native::stream stream, std::uint32_t* place,
                                std::uint32_t value) noexcept {
  return hipCUDAErrorTohipError(cuda_write_value(stream, place, value));
}
#else
// AMD's functions accept only memory from hipMallocSignalMemory, in blocks of 8 bytes, and the host
// cannot poll that like pinned memory.
inline constexpr bool values_in_pinned_memory = false;
inline error stream_wait_value(native::stream, std::uint32_t*, std::uint32_t) noexcept {
  return hipErrorNotSupported;
}
inline error stream_write_value(native::stream, std::uint32_t*, std::uint32_t) noexcept {
  return hipErrorNotSupported;
}
#endif

// roctx has ranges but no names for streams, and would be another library to link. It is not used.
inline void name_stream(native::stream, const char*) noexcept {}
inline void push_range(const char*) noexcept {}
inline void pop_range() noexcept {}

// Activities
//
// Only the CUDA backend has them, from CUPTI. AMD's libraries for this purpose have a different
// interface.
inline bool collect_activities(backend::ActivitySink, char*, std::size_t) noexcept { return false; }
inline void deliver_activities(bool) noexcept {}
inline bool activity_time(std::uint64_t&) noexcept { return false; }
inline bool activity_stream(native::stream, std::uint32_t&) noexcept { return false; }

// Events
//
// AMD's runtime blocks in hipEventSynchronize only if the flags are exactly hipEventBlockingSync,
// so a blocking event is always timed. An interprocess event must not be timed, so it spins.
inline constexpr unsigned int event_flags(bool timed, bool blocking_wait,
                                          bool interprocess) noexcept {
  if (interprocess) return hipEventInterprocess | hipEventDisableTiming;
  if (blocking_wait) return hipEventBlockingSync;
  return timed ? hipEventDefault : hipEventDisableTiming;
}
inline constexpr auto event_create = &hipEventCreateWithFlags;
inline constexpr auto event_destroy = &hipEventDestroy;
inline constexpr auto event_record = &hipEventRecord;
inline constexpr auto event_query = &hipEventQuery;
inline constexpr auto event_synchronize = &hipEventSynchronize;
inline constexpr auto event_elapsed = &hipEventElapsedTime;
using ipc_event_handle = hipIpcEventHandle_t;
#ifdef __HIP_PLATFORM_NVIDIA__
// 5.2's header wraps only some of these calls.
inline constexpr auto ipc_get_event_handle = translated<&cudaIpcGetEventHandle>;
inline constexpr auto ipc_open_event_handle = translated<&cudaIpcOpenEventHandle>;
#else
inline constexpr auto ipc_get_event_handle = &hipIpcGetEventHandle;
inline constexpr auto ipc_open_event_handle = &hipIpcOpenEventHandle;
#endif

// Graphs
#ifdef __HIP_PLATFORM_NVIDIA__
using graph_node_type = cudaGraphNodeType;
inline constexpr graph_node_type node_kernel = cudaGraphNodeTypeKernel;
inline constexpr bool is_copy_node(graph_node_type type) noexcept {
  return type == cudaGraphNodeTypeMemcpy;
}
inline constexpr graph_node_type node_fill = cudaGraphNodeTypeMemset;
inline constexpr graph_node_type node_host_function = cudaGraphNodeTypeHost;
inline constexpr graph_node_type node_allocation = cudaGraphNodeTypeMemAlloc;
inline constexpr graph_node_type node_free = cudaGraphNodeTypeMemFree;
inline constexpr graph_node_type node_event_record = cudaGraphNodeTypeEventRecord;
inline constexpr graph_node_type node_event_wait = cudaGraphNodeTypeWaitEvent;
inline constexpr error capture_is_broken = hipErrorStreamCaptureInvalidated;
inline error find_capture(native::stream stream, Captured& found) noexcept {
  return hipCUDAErrorTohipError(cuda_find_capture(stream, found));
}
inline constexpr auto continue_after = translated<&cuda_continue_after>;
inline constexpr auto graph_keep = translated<&cuda_graph_keep>;
inline constexpr auto graph_add_event_record = translated<&cudaGraphAddEventRecordNode>;
inline constexpr auto graph_add_event_wait = translated<&cudaGraphAddEventWaitNode>;
inline constexpr auto graph_destroy_node = translated<&cudaGraphDestroyNode>;
using host_function_arguments = cudaHostNodeParams;
inline error graph_get_host_function(native::graph_node node,
                                     host_function_arguments* found) noexcept {
  return hipCUDAErrorTohipError(cudaGraphHostNodeGetParams(node, found));
}
inline constexpr graph_node_type node_graph = cudaGraphNodeTypeGraph;
inline constexpr error out_of_memory = hipErrorOutOfMemory;
inline constexpr auto graph_add_graph = translated<&cudaGraphAddChildGraphNode>;
inline constexpr auto graph_of_node = translated<&cudaGraphChildGraphNodeGetGraph>;
inline constexpr auto graph_set_host_function = translated<&cudaGraphHostNodeSetParams>;
inline constexpr auto graph_get_nodes = translated<&cudaGraphGetNodes>;
inline constexpr auto graph_get_edges = translated<&cuda_graph_edges>;
inline constexpr auto graph_node_get_type = translated<&cudaGraphNodeGetType>;
inline constexpr auto graph_destroy = translated<&cudaGraphDestroy>;
inline constexpr unsigned long long free_at_next_launch = cudaGraphInstantiateFlagAutoFreeOnLaunch;
inline constexpr auto graph_instantiate = translated<&cudaGraphInstantiateWithFlags>;
inline constexpr auto graph_update = translated<&cuda_graph_update>;
inline constexpr auto graph_launch = translated<&cudaGraphLaunch>;
inline constexpr bool orders_graph_launches = true;
inline constexpr auto executable_graph_destroy = translated<&cudaGraphExecDestroy>;
#else
using graph_node_type = hipGraphNodeType;  // numbered from 1 in 5.2, and from 0 since
inline constexpr graph_node_type node_kernel = hipGraphNodeTypeKernel;
inline constexpr bool is_copy_node(graph_node_type type) noexcept {
#if HIP_VERSION < 50300000
  if (type == hipGraphNodeTypeMemcpy1D) return true;
#endif
  return type == hipGraphNodeTypeMemcpy || type == hipGraphNodeTypeMemcpyFromSymbol ||
         type == hipGraphNodeTypeMemcpyToSymbol;
}
inline constexpr graph_node_type node_fill = hipGraphNodeTypeMemset;
inline constexpr graph_node_type node_host_function = hipGraphNodeTypeHost;
#if HIP_VERSION >= 50500000
inline constexpr graph_node_type node_allocation = hipGraphNodeTypeMemAlloc;
inline constexpr graph_node_type node_free = hipGraphNodeTypeMemFree;
#else
// No node has this type: see malloc_from_pool.
inline constexpr graph_node_type node_allocation = hipGraphNodeTypeCount;
inline constexpr graph_node_type node_free = hipGraphNodeTypeCount;
#endif
inline constexpr graph_node_type node_event_record = hipGraphNodeTypeEventRecord;
inline constexpr graph_node_type node_event_wait = hipGraphNodeTypeWaitEvent;
inline constexpr error capture_is_broken = hipErrorStreamCaptureInvalidated;
inline constexpr auto find_capture = &hip_find_capture;
inline error continue_after(native::stream stream, native::graph_node node) noexcept {
  return hipStreamUpdateCaptureDependencies(stream, &node, 1, hipStreamSetCaptureDependencies);
}
inline constexpr auto graph_keep = &hip_graph_keep;
inline constexpr auto graph_add_event_record = &hipGraphAddEventRecordNode;
inline constexpr auto graph_add_event_wait = &hipGraphAddEventWaitNode;
inline constexpr auto graph_destroy_node = &hipGraphDestroyNode;
using host_function_arguments = hipHostNodeParams;
inline constexpr auto graph_get_host_function = &hipGraphHostNodeGetParams;
inline constexpr graph_node_type node_graph = hipGraphNodeTypeGraph;
inline constexpr error out_of_memory = hipErrorOutOfMemory;
inline constexpr auto graph_add_graph = &hipGraphAddChildGraphNode;
inline constexpr auto graph_of_node = &hipGraphChildGraphNodeGetGraph;
inline constexpr auto graph_set_host_function = &hipGraphHostNodeSetParams;
inline constexpr auto graph_get_nodes = &hipGraphGetNodes;
inline constexpr auto graph_get_edges = &hipGraphGetEdges;
inline constexpr auto graph_node_get_type = &hipGraphNodeGetType;
inline constexpr auto graph_destroy = &hipGraphDestroy;
inline constexpr unsigned long long free_at_next_launch = hipGraphInstantiateFlagAutoFreeOnLaunch;
inline constexpr auto graph_instantiate = &hipGraphInstantiateWithFlags;
inline error graph_update(native::executable_graph executable, native::graph graph) noexcept {
  native::graph_node differs = nullptr;
  hipGraphExecUpdateResult why{};
  return hipGraphExecUpdate(executable, graph, &differs, &why);
}
inline constexpr auto graph_launch = &hipGraphLaunch;
// Nothing in the sources of 5.2 to 6.2 orders them.
inline constexpr bool orders_graph_launches = false;
inline constexpr auto executable_graph_destroy = &hipGraphExecDestroy;
#endif

// Memory
//
// The allocating functions are overloaded in C++. hipHostMallocCoherent is required: without it,
// other flags make the memory incoherent, and a polling host may read stale values.
inline constexpr unsigned int malloc_host_flags =
    hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;
inline constexpr unsigned int malloc_host_write_combined = hipHostMallocWriteCombined;
inline constexpr error (*malloc_host)(void**, std::size_t, unsigned int) = &hipHostMalloc;
inline constexpr auto free_host = &hipHostFree;
inline constexpr unsigned int host_register_flags = hipHostRegisterPortable | hipHostRegisterMapped;
inline constexpr auto host_register = &hipHostRegister;
#ifdef __HIP_PLATFORM_NVIDIA__
inline constexpr unsigned int host_register_read_only = cudaHostRegisterReadOnly;
inline constexpr bool registers_read_only_memory = true;
#else
// In HIP 5 the same bit makes memory coarse-grained.
inline constexpr unsigned int host_register_read_only = 0;
inline constexpr bool registers_read_only_memory = false;
#endif
#ifdef __HIP_PLATFORM_NVIDIA__
inline constexpr bool copies_to_pageable_are_complete = true;
inline constexpr bool prefers_registered_pages = true;
#else
// Documented for HIP 5, not measured, and newer versions may return early.
inline constexpr bool copies_to_pageable_are_complete = false;
// No documentation says that registered memory is coherent.
inline constexpr bool prefers_registered_pages = false;
#endif
inline constexpr auto host_unregister = &hipHostUnregister;
inline constexpr auto host_get_device_pointer = &hipHostGetDevicePointer;
inline constexpr error (*malloc_device)(void**, std::size_t) = &hipMalloc;
inline constexpr auto free_device = &hipFree;
inline constexpr unsigned int malloc_managed_flags = hipMemAttachGlobal;
inline constexpr error (*malloc_managed)(void**, std::size_t, unsigned int) = &hipMallocManaged;
#ifdef __HIP_PLATFORM_NVIDIA__
inline constexpr auto prefetch_async = translated<&cuda_prefetch>;
inline constexpr auto advise = translated<&cuda_advise>;
#else
static_assert(hipCpuDeviceId == -1);
inline constexpr auto prefetch_async = &hipMemPrefetchAsync;
inline error advise(const void* memory, std::size_t bytes, int advice, int place) noexcept {
  return hipMemAdvise(memory, bytes, static_cast<hipMemoryAdvise>(advice), place);
}
#endif
#if defined __HIP_PLATFORM_NVIDIA__ || HIP_VERSION >= 50500000
inline constexpr error (*malloc_from_pool)(void**, std::size_t, hipMemPool_t,
                                           native::stream) = &hipMallocFromPoolAsync;
inline constexpr auto free_async = &hipFreeAsync;
#else
// AMD's runtime captures these two since 5.5. Before, it executes them at once, so that a graph
// would use freed memory.
inline error malloc_from_pool(void** memory, std::size_t size, hipMemPool_t pool,
                              native::stream stream) noexcept {
  Captured capture;
  const error e = hip_find_capture(stream, capture);
  if (e != hipSuccess) return e;
  return capture.graph != nullptr ? hipErrorStreamCaptureUnsupported
                                  : hipMallocFromPoolAsync(memory, size, pool, stream);
}
inline error free_async(void* memory, native::stream stream) noexcept {
  // If the query fails, the memory is freed as outside a capture: otherwise it would leak.
  Captured capture;
  static_cast<void>(hip_find_capture(stream, capture));
  return capture.graph != nullptr ? hipErrorStreamCaptureUnsupported : hipFreeAsync(memory, stream);
}
#endif
using ipc_memory_handle = hipIpcMemHandle_t;
inline constexpr unsigned int ipc_open_flags = hipIpcMemLazyEnablePeerAccess;
#ifdef __HIP_PLATFORM_NVIDIA__
inline constexpr auto ipc_get_memory_handle = translated<&cudaIpcGetMemHandle>;
inline constexpr auto ipc_open_memory_handle = translated<&cudaIpcOpenMemHandle>;
inline constexpr auto ipc_close_memory_handle = translated<&cudaIpcCloseMemHandle>;
#else
inline constexpr auto ipc_get_memory_handle = &hipIpcGetMemHandle;
inline constexpr auto ipc_open_memory_handle = &hipIpcOpenMemHandle;
inline constexpr auto ipc_close_memory_handle = &hipIpcCloseMemHandle;
#endif
using memory_pool = hipMemPool_t;
#ifdef __HIP_PLATFORM_NVIDIA__
inline constexpr auto memory_pool_release_threshold =
    cudaMemPoolAttrReleaseThreshold;  // 5.2 has the name of the type, but no names of its values.
inline constexpr auto memory_pool_reserved = cudaMemPoolAttrReservedMemCurrent;
inline constexpr auto memory_pool_used = cudaMemPoolAttrUsedMemCurrent;
#else
inline constexpr auto memory_pool_release_threshold = hipMemPoolAttrReleaseThreshold;
inline constexpr auto memory_pool_reserved = hipMemPoolAttrReservedMemCurrent;
inline constexpr auto memory_pool_used = hipMemPoolAttrUsedMemCurrent;
#endif
inline error memory_pool_create(memory_pool* pool, int device) noexcept {
  hipMemPoolProps made{};
#ifdef __HIP_PLATFORM_NVIDIA__
  made.allocType = cudaMemAllocationTypePinned;
  made.location.type = cudaMemLocationTypeDevice;
#else
  made.allocType = hipMemAllocationTypePinned;
  made.location.type = hipMemLocationTypeDevice;
#endif
  made.location.id = device;
  return hipMemPoolCreate(pool, &made);
}
inline constexpr auto memory_pool_destroy = &hipMemPoolDestroy;
inline constexpr auto device_get_default_memory_pool = &hipDeviceGetDefaultMemPool;
inline constexpr auto memory_pool_set_attribute = &hipMemPoolSetAttribute;
inline constexpr auto memory_pool_get_attribute = &hipMemPoolGetAttribute;
inline constexpr auto memory_pool_trim = &hipMemPoolTrimTo;
#ifdef __HIP_PLATFORM_NVIDIA__
// The header does not wrap hipMemPoolSetAccess (5.2).
inline error memory_pool_allow(memory_pool pool, int peer, bool allow) noexcept {
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = peer;
  access.flags = allow ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
  return hipCUDAErrorTohipError(cudaMemPoolSetAccess(pool, &access, 1));
}
#else
inline error memory_pool_allow(memory_pool pool, int peer, bool allow) noexcept {
  hipMemAccessDesc access{};
  access.location.type = hipMemLocationTypeDevice;
  access.location.id = peer;
  access.flags = allow ? hipMemAccessFlagsProtReadWrite : hipMemAccessFlagsProtNone;
  return hipMemPoolSetAccess(pool, &access, 1);
}
#endif
// Numbered as in HIP 6 and CUDA. HIP 5 numbers host 0 and device 1, and has no name for managed.
using memory_type = int;
inline constexpr memory_type memory_host = 1;
inline constexpr memory_type memory_device = 2;
inline constexpr memory_type memory_managed = 3;
inline error pointer_get_attributes(memory_type* type, int* device, const void* pointer) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  // The wrapper returns "invalid value" for managed and pageable memory alike (5.2 to 5.7).
  cudaPointerAttributes attributes{};
  const error e = hipCUDAErrorTohipError(cudaPointerGetAttributes(&attributes, pointer));
  *type = attributes.type;
#else
  hipPointerAttribute_t attributes{};
  const error pending = hipPeekAtLastError();
  const error e = hipPointerGetAttributes(&attributes, pointer);
  // HIP 5, and for some addresses HIP 6, returns this for memory that the runtime does not know.
  if (e == hipErrorInvalidValue) {
    if (pending == hipSuccess) static_cast<void>(hipGetLastError());
    *type = 0;
    return hipSuccess;
  }
#if HIP_VERSION >= 60000000
  *type = attributes.type == hipMemoryTypeHost     ? memory_host
          : attributes.type == hipMemoryTypeDevice ? memory_device
                                                   : 0;
#else
  *type = attributes.memoryType == hipMemoryTypeHost ? memory_host : memory_device;
#endif
  if (attributes.isManaged != 0) *type = memory_managed;
#endif
  *device = attributes.device;
  return e;
}

// Copies and fills
inline constexpr auto copy_default = hipMemcpyDefault;
inline error copy_async(void* to, const void* from, std::size_t bytes,
                        native::stream stream) noexcept {
  return hipMemcpyAsync(to, from, bytes, copy_default, stream);
}
inline error copy_2d_async(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                           std::size_t width, std::size_t height, hipMemcpyKind kind,
                           native::stream stream) noexcept {
  return hipMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, stream);
}
inline constexpr auto copy_peer_async = &hipMemcpyPeerAsync;
inline error copy_batch_async(void* const* to, const void* const* from, const std::size_t* bytes,
                              std::size_t count, native::stream stream) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  return hipCUDAErrorTohipError(cuda_copy_batch(to, from, bytes, count, stream));
#else
  // HIP 7.1 added hipMemcpyBatchAsync. Up to 7.2.3 it enqueues the copies one by one; later
  // versions do not (ROCm/rocm-systems 2663 and 6697), but were not tried.
  static_cast<void>(to), static_cast<void>(from), static_cast<void>(bytes),
      static_cast<void>(count), static_cast<void>(stream);
  return hipErrorNotSupported;
#endif
}
inline constexpr auto fill_async = &hipMemsetAsync;
inline error fill_16_async(void* to, std::uint32_t value, std::size_t count,
                           native::stream stream) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  // hipMemsetD16Async is a driver function there.
  return hipCUDAErrorTohipError(cuda_fill_16(to, value, count, stream));
#else
  return hipMemsetD16Async(to, static_cast<unsigned short>(value), count, stream);
#endif
}
inline error fill_32_async(void* to, std::uint32_t value, std::size_t count,
                           native::stream stream) noexcept {
#ifdef __HIP_PLATFORM_NVIDIA__
  return hipCUDAErrorTohipError(cuda_fill_32(to, value, count, stream));
#else
  return hipMemsetD32Async(to, static_cast<int>(value), count, stream);
#endif
}
inline constexpr auto fill_2d_async = &hipMemset2DAsync;

}  // namespace runnel::inline RUNNEL_ABI::rt
