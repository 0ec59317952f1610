// SPDX-License-Identifier: Apache-2.0
/// Includes the vendor's header, so that the compiler checks each entry point against its
/// declaration, and defines common names for what the vendors name differently.
#pragma once

#ifdef STANDIN_CUDA
#include <cuda_runtime_api.h>
#define API(name) cuda##name
#define API_NAME(name) "cuda" #name
#else
#include <hip/hip_runtime_api.h>
#define API(name) hip##name
#define API_NAME(name) "hip" #name
#endif

namespace standin::vendor {

using Error = API(Error_t);
using StreamHandle = API(Stream_t);
using EventHandle = API(Event_t);
using CopyKind = API(MemcpyKind);
using CaptureStatus = API(StreamCaptureStatus);
using CaptureMode = API(StreamCaptureMode);
using GraphHandle = API(Graph_t);
using NodeHandle = API(GraphNode_t);
using ExecutableHandle = API(GraphExec_t);
using NodeType = API(GraphNodeType);
using IpcEventHandle = API(IpcEventHandle_t);
using IpcMemoryHandle = API(IpcMemHandle_t);
using MemoryPool = API(MemPool_t);
using MemoryPoolProperties = API(MemPoolProps);
using MemoryAccess = API(MemAccessDesc);
using MemoryAdvice = API(MemoryAdvise);

#ifdef STANDIN_CUDA
inline constexpr int version = CUDART_VERSION;
inline constexpr const char* priorities = "0,-5";
inline constexpr bool success_clears_last_error = false;
inline constexpr bool not_ready_is_last_error = false;  // seen on an H200, driver 580, CUDA 13.0
inline constexpr bool null_stream_has_flags = true;
inline constexpr bool running_graphs_may_be_destroyed = true;
inline constexpr bool orders_graph_launches = true;
inline constexpr bool captures_allocations = true;
inline constexpr bool destroyed_fork_breaks_capture = true;
// Seen on an H200, in each capture mode; so does cudaStreamGetDevice.
inline constexpr bool flags_break_capture = true;
using Attribute = cudaDeviceAttr;
using MemoryPoolAttribute = cudaMemPoolAttr;
inline constexpr MemoryPoolAttribute pool_threshold = cudaMemPoolAttrReleaseThreshold,
                                     pool_used = cudaMemPoolAttrUsedMemCurrent;
#else
inline constexpr int version = HIP_VERSION;
inline constexpr const char* priorities = "1,-1";
// Before HIP 7 every call set the last error, successful calls too.
inline constexpr bool success_clears_last_error = HIP_VERSION < 70000000;
inline constexpr bool not_ready_is_last_error = HIP_VERSION < 70000000;
inline constexpr bool null_stream_has_flags = false;
// Read in the sources of AMD's runtime, 5.2 to 6.2.
inline constexpr bool running_graphs_may_be_destroyed = false;
inline constexpr bool orders_graph_launches = false;
inline constexpr bool captures_allocations = HIP_VERSION >= 50500000;
inline constexpr bool destroyed_fork_breaks_capture = false;
inline constexpr bool flags_break_capture = false;
using Attribute = hipDeviceAttribute_t;
using MemoryPoolAttribute = hipMemPoolAttr;
inline constexpr MemoryPoolAttribute pool_threshold = hipMemPoolAttrReleaseThreshold,
                                     pool_used = hipMemPoolAttrUsedMemCurrent;
#endif

}  // namespace standin::vendor

namespace standin {
using vendor::Error, vendor::EventHandle, vendor::ExecutableHandle, vendor::GraphHandle,
    vendor::NodeHandle, vendor::StreamHandle;

using Code = int;
// Both vendors use the same numbers.
inline constexpr Code ok = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3,
                      no_device = 100, invalid_device = 101, no_context = 201,
                      peer_access_unsupported = 217, invalid_handle = 400, illegal_state = 401,
                      not_ready = 600, peer_access_already_enabled = 704,
                      peer_access_not_enabled = 705, host_memory_already_registered = 712,
                      host_memory_not_registered = 713, not_permitted = 800, not_supported = 801,
                      capture_unsupported = 900, capture_invalidated = 901, capture_merge = 902,
                      capture_unmatched = 903, capture_unjoined = 904, capture_isolation = 905,
                      capture_implicit = 906, captured_event = 907, capture_wrong_thread = 908,
                      graph_update_failure = 910;

}  // namespace standin
