// SPDX-License-Identifier: Apache-2.0
/// The names that ../cuda_hip uses, for CUDA 12 and 13. hip/runtime.hpp has the same names in the
/// same order.
#pragma once

#include <cuda_runtime_api.h>
#if __has_include(<nvtx3/nvToolsExtCudaRt.h>)
#include <nvtx3/nvToolsExtCudaRt.h>
#endif
#include <runnel/native.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "activities.hpp"
#include "current_device.hpp"
#include "driver_functions.hpp"
#include "driver_twins.hpp"
#include "graph_functions.hpp"
#include "green_contexts.hpp"
#include "managed_memory.hpp"

static_assert(CUDART_VERSION >= 12000, "runnel needs CUDA 12 or later");

namespace runnel::inline RUNNEL_ABI::rt {

static_assert(std::is_same_v<native::stream, cudaStream_t>);
static_assert(std::is_same_v<native::event, cudaEvent_t>);
static_assert(std::is_same_v<native::graph, cudaGraph_t>);
static_assert(std::is_same_v<native::graph_node, cudaGraphNode_t>);
static_assert(std::is_same_v<native::executable_graph, cudaGraphExec_t>);

// Errors
using error = cudaError_t;
inline constexpr error not_ready = cudaErrorNotReady;
inline constexpr error peer_access_already_enabled = cudaErrorPeerAccessAlreadyEnabled;
inline constexpr error peer_access_not_enabled = cudaErrorPeerAccessNotEnabled;
inline constexpr auto error_name = &cudaGetErrorName;
inline constexpr auto error_text = &cudaGetErrorString;
inline constexpr auto peek_at_last_error = &cudaPeekAtLastError;
inline constexpr auto get_last_error = &cudaGetLastError;

// Devices
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
// The driver's CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS. The runtime accepts the number,
// but has no name for it.
inline constexpr attribute attribute_stream_memory_operations = static_cast<attribute>(122);
inline constexpr attribute attribute_memory_pools = cudaDevAttrMemoryPoolsSupported;
inline constexpr const char* hardware_queues_variable = "CUDA_DEVICE_MAX_CONNECTIONS";
inline constexpr int hardware_queues_default = 8;
inline constexpr const char* container_options = "--gpus all";
inline constexpr const char* hiding_variable = "CUDA_VISIBLE_DEVICES";
inline constexpr auto get_device_count = &cudaGetDeviceCount;
inline constexpr auto get_device = &cuda_get_device;
inline constexpr auto set_device = &cuda_set_device;
// The runtime has no call that returns only the name.
inline error device_name(char* text, std::size_t size, int device) noexcept {
  cudaDeviceProp properties{};
  const error e = cudaGetDeviceProperties(&properties, device);
  if (e == cudaSuccess) std::snprintf(text, size, "%s", properties.name);
  return e;
}
inline error device_uuid(unsigned char (&bytes)[16], int device) noexcept {
  cudaDeviceProp properties{};
  const error e = cudaGetDeviceProperties(&properties, device);
  std::memcpy(bytes, properties.uuid.bytes, sizeof bytes);
  return e;
}
inline constexpr auto device_pci_bus_id = &cudaDeviceGetPCIBusId;
inline constexpr unsigned int host_wait_flags = cudaDeviceScheduleMask;
inline constexpr unsigned int host_wait_automatic = cudaDeviceScheduleAuto;
inline constexpr unsigned int host_wait_spin = cudaDeviceScheduleSpin;
inline constexpr unsigned int host_wait_yield = cudaDeviceScheduleYield;
inline constexpr unsigned int host_wait_block = cudaDeviceScheduleBlockingSync;
inline constexpr auto get_device_flags = &cudaGetDeviceFlags;
inline constexpr auto set_device_flags = &cudaSetDeviceFlags;
inline constexpr auto device_get_attribute = &cudaDeviceGetAttribute;
inline constexpr auto memory_get_info = &cudaMemGetInfo;
inline constexpr auto get_stream_priority_range = &cudaDeviceGetStreamPriorityRange;
inline constexpr auto device_synchronize = &cudaDeviceSynchronize;
inline constexpr auto can_access_peer = &cudaDeviceCanAccessPeer;
inline constexpr auto enable_peer_access = &cudaDeviceEnablePeerAccess;
inline constexpr auto disable_peer_access = &cudaDeviceDisablePeerAccess;
inline constexpr auto runtime_get_version = &cudaRuntimeGetVersion;
inline constexpr auto driver_get_version = &cudaDriverGetVersion;

// Streams
inline constexpr unsigned int stream_blocking = cudaStreamDefault;
inline constexpr unsigned int stream_non_blocking = cudaStreamNonBlocking;
inline native::stream per_thread_stream() noexcept { return cudaStreamPerThread; }
inline constexpr auto stream_create = &cudaStreamCreateWithPriority;
inline constexpr auto can_divide_devices = &cuda_can_divide_devices;
inline constexpr auto device_divide = &cuda_device_divide;
inline constexpr auto stream_create_in = &cuda_stream_create_in;
inline constexpr auto stream_destroy = &cudaStreamDestroy;
inline constinit DriverTwin stream_query{"cuStreamQuery", &cudaStreamQuery};
inline constinit DriverTwin stream_synchronize{"cuStreamSynchronize", &cudaStreamSynchronize};
inline constexpr auto stream_get_priority = &cudaStreamGetPriority;
inline constexpr auto stream_get_flags = &cudaStreamGetFlags;
inline constexpr auto stream_get_device = &cuda_stream_device;
inline error stream_is_capturing(native::stream stream, bool* capturing) noexcept {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const error e = cuda_capture_status(stream, &capture);
  *capturing = capture != cudaStreamCaptureStatusNone;
  return e;
}
using capture_mode = cudaStreamCaptureMode;
inline constexpr capture_mode capture_mode_global = cudaStreamCaptureModeGlobal;
inline constexpr capture_mode capture_mode_own_only = cudaStreamCaptureModeThreadLocal;
inline constexpr capture_mode capture_mode_relaxed = cudaStreamCaptureModeRelaxed;
inline constinit DriverTwin exchange_capture_mode{"cuThreadExchangeStreamCaptureMode",
                                                  &cudaThreadExchangeStreamCaptureMode};
inline constexpr auto stream_capture_number = &cuda_capture_number;
inline constexpr auto stream_begin_capture = &cudaStreamBeginCapture;
inline constexpr auto stream_end_capture = &cudaStreamEndCapture;
inline constinit DriverTwin stream_wait_event{"cuStreamWaitEvent", &cudaStreamWaitEvent};
inline constinit DriverTwin launch_host_func{"cuLaunchHostFunc", &cudaLaunchHostFunc};
inline constexpr bool values_in_pinned_memory = true;
inline constexpr auto stream_wait_value = &cuda_wait_value;
inline constexpr auto stream_write_value = &cuda_write_value;
// The profiler's header. Without a profiler its calls do nothing.
#if __has_include(<nvtx3/nvToolsExtCudaRt.h>)
inline void name_stream(native::stream stream, const char* name) noexcept {
  nvtxNameCudaStreamA(stream, name);
}
inline void push_range(const char* name) noexcept { nvtxRangePushA(name); }
inline void pop_range() noexcept { nvtxRangePop(); }
#else
inline void name_stream(native::stream, const char*) noexcept {}
inline void push_range(const char*) noexcept {}
inline void pop_range() noexcept {}
#endif

// Activities
inline constexpr auto collect_activities = &cuda_collect_activities;
inline constexpr auto deliver_activities = &cuda_deliver_activities;
inline constexpr auto activity_time = &cuda_activity_time;
inline constexpr auto activity_stream = &cuda_activity_stream;

// Events
inline constexpr unsigned int event_flags(bool timed, bool blocking_wait,
                                          bool interprocess) noexcept {
  return (timed ? cudaEventDefault : cudaEventDisableTiming) |
         (blocking_wait ? cudaEventBlockingSync : 0U) | (interprocess ? cudaEventInterprocess : 0U);
}
inline constexpr auto event_create = &cudaEventCreateWithFlags;
inline constexpr auto event_destroy = &cudaEventDestroy;
inline constinit DriverTwin event_record{"cuEventRecord", &cudaEventRecord};
inline constinit DriverTwin event_query{"cuEventQuery", &cudaEventQuery};
inline constinit DriverTwin event_synchronize{"cuEventSynchronize", &cudaEventSynchronize};
inline constexpr auto event_elapsed = &cudaEventElapsedTime;
using ipc_event_handle = cudaIpcEventHandle_t;
inline constexpr auto ipc_get_event_handle = &cudaIpcGetEventHandle;
inline constexpr auto ipc_open_event_handle = &cudaIpcOpenEventHandle;

// Graphs
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
inline constexpr error capture_is_broken = cudaErrorStreamCaptureInvalidated;
inline constexpr auto find_capture = &cuda_find_capture;
inline constexpr auto continue_after = &cuda_continue_after;
inline constexpr auto graph_keep = &cuda_graph_keep;
inline constexpr auto graph_add_event_record = &cudaGraphAddEventRecordNode;
inline constexpr auto graph_add_event_wait = &cudaGraphAddEventWaitNode;
inline constexpr auto graph_destroy_node = &cudaGraphDestroyNode;
using host_function_arguments = cudaHostNodeParams;
inline constexpr auto graph_get_host_function = &cudaGraphHostNodeGetParams;
inline constexpr graph_node_type node_graph = cudaGraphNodeTypeGraph;
inline constexpr error out_of_memory = cudaErrorMemoryAllocation;
inline constexpr auto graph_add_graph = &cudaGraphAddChildGraphNode;
inline constexpr auto graph_of_node = &cudaGraphChildGraphNodeGetGraph;
inline constexpr auto graph_set_host_function = &cudaGraphHostNodeSetParams;
inline constexpr auto graph_get_nodes = &cudaGraphGetNodes;
inline constexpr auto graph_get_edges = &cuda_graph_edges;
inline constexpr auto graph_node_get_type = &cudaGraphNodeGetType;
inline constexpr auto graph_destroy = &cudaGraphDestroy;
inline constexpr unsigned long long free_at_next_launch = cudaGraphInstantiateFlagAutoFreeOnLaunch;
inline constexpr auto graph_instantiate = &cudaGraphInstantiateWithFlags;
inline constexpr auto graph_update = &cuda_graph_update;
inline constexpr auto graph_launch = &cudaGraphLaunch;
inline constexpr bool orders_graph_launches = true;
inline constexpr auto executable_graph_destroy = &cudaGraphExecDestroy;

// Memory
inline constexpr unsigned int malloc_host_flags = cudaHostAllocPortable | cudaHostAllocMapped;
inline constexpr unsigned int malloc_host_write_combined = cudaHostAllocWriteCombined;
inline constexpr auto malloc_host = &cudaHostAlloc;
inline constexpr auto free_host = &cudaFreeHost;
inline constexpr unsigned int host_register_flags =
    cudaHostRegisterPortable | cudaHostRegisterMapped;
inline constexpr auto host_register = &cudaHostRegister;
inline constexpr unsigned int host_register_read_only = cudaHostRegisterReadOnly;
inline constexpr bool registers_read_only_memory = true;
// Measured on an H200 (driver 580, CUDA 13): 4 B to 32 MiB, flat and pitched, behind a closed gate.
inline constexpr bool copies_to_pageable_are_complete = true;
inline constexpr bool prefers_registered_pages = true;
inline constexpr auto host_unregister = &cudaHostUnregister;
inline constexpr auto host_get_device_pointer = &cudaHostGetDevicePointer;
inline constexpr auto malloc_device = &cudaMalloc;
inline constexpr auto free_device = &cudaFree;
inline constexpr unsigned int malloc_managed_flags = cudaMemAttachGlobal;
inline constexpr auto malloc_managed = &cudaMallocManaged;
inline constexpr auto prefetch_async = &cuda_prefetch;
inline constexpr auto advise = &cuda_advise;
inline constinit DriverTwin malloc_from_pool{"cuMemAllocFromPoolAsync", &cudaMallocFromPoolAsync};
inline constinit DriverTwin free_async{"cuMemFreeAsync", &cudaFreeAsync};
using ipc_memory_handle = cudaIpcMemHandle_t;
inline constexpr unsigned int ipc_open_flags = cudaIpcMemLazyEnablePeerAccess;
inline constexpr auto ipc_get_memory_handle = &cudaIpcGetMemHandle;
inline constexpr auto ipc_open_memory_handle = &cudaIpcOpenMemHandle;
inline constexpr auto ipc_close_memory_handle = &cudaIpcCloseMemHandle;
using memory_pool = cudaMemPool_t;
inline constexpr auto memory_pool_release_threshold = cudaMemPoolAttrReleaseThreshold;
inline constexpr auto memory_pool_reserved = cudaMemPoolAttrReservedMemCurrent;
inline constexpr auto memory_pool_used = cudaMemPoolAttrUsedMemCurrent;
inline error memory_pool_create(memory_pool* pool, int device) noexcept {
  cudaMemPoolProps made{};
  made.allocType = cudaMemAllocationTypePinned;
  made.location.type = cudaMemLocationTypeDevice;
  made.location.id = device;
  return cudaMemPoolCreate(pool, &made);
}
inline constexpr auto memory_pool_destroy = &cudaMemPoolDestroy;
inline constexpr auto device_get_default_memory_pool = &cudaDeviceGetDefaultMemPool;
inline constexpr auto memory_pool_set_attribute = &cudaMemPoolSetAttribute;
inline constexpr auto memory_pool_get_attribute = &cudaMemPoolGetAttribute;
inline constexpr auto memory_pool_trim = &cudaMemPoolTrimTo;
inline error memory_pool_allow(memory_pool pool, int peer, bool allow) noexcept {
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = peer;
  access.flags = allow ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
  return cudaMemPoolSetAccess(pool, &access, 1);
}
using memory_type = cudaMemoryType;
inline constexpr memory_type memory_host = cudaMemoryTypeHost;
inline constexpr memory_type memory_device = cudaMemoryTypeDevice;
inline constexpr memory_type memory_managed = cudaMemoryTypeManaged;
inline constexpr auto pointer_get_attributes = &cuda_pointer_attributes;

// Copies and fills
inline constexpr auto copy_default = cudaMemcpyDefault;
inline constinit DriverTwin copy_async{"cuMemcpyAsync", &copy_by_runtime};
inline constexpr auto copy_2d_async = &cudaMemcpy2DAsync;
inline constexpr auto copy_peer_async = &cudaMemcpyPeerAsync;
inline constexpr auto copy_batch_async = &cuda_copy_batch;
// The value is 0 to 255, so that it can be passed as an int.
inline constinit DriverTwin fill_async{"cuMemsetD8Async", &cudaMemsetAsync};
inline constexpr auto fill_16_async = &cuda_fill_16;
inline constexpr auto fill_32_async = &cuda_fill_32;
inline constexpr auto fill_2d_async = &cudaMemset2DAsync;

}  // namespace runnel::inline RUNNEL_ABI::rt
