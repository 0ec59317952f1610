// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// The vendor's own handle types. They are named by struct tag, so that this header includes no
/// vendor header.
///
/// `native()` of a stream, an event or a graph returns its handle, and `from_native()` wraps one.
/// Kernels are launched on the handle: `kernel<<<blocks, threads, 0, stream.native()>>>(...)`.
/// docs/sharing.md lists the types of other libraries, and explains the handles 0, 1 and 2.
#pragma once

#include <runnel/config.hpp>

#if defined RUNNEL_BACKEND_CUDA || defined RUNNEL_HIP_PLATFORM_NVIDIA
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;
namespace runnel::inline RUNNEL_ABI::native {
using stream = ::CUstream_st*;               ///< is `cudaStream_t`
using event = ::CUevent_st*;                 ///< is `cudaEvent_t`
using graph = ::CUgraph_st*;                 ///< is `cudaGraph_t`
using graph_node = ::CUgraphNode_st*;        ///< is `cudaGraphNode_t`
using executable_graph = ::CUgraphExec_st*;  ///< is `cudaGraphExec_t`
}  // namespace runnel::inline RUNNEL_ABI::native
#elif defined RUNNEL_BACKEND_HIP
struct ihipStream_t;
struct ihipEvent_t;
struct ihipGraph;
struct hipGraphNode;
struct hipGraphExec;
namespace runnel::inline RUNNEL_ABI::native {
using stream = ::ihipStream_t*;            ///< is `hipStream_t`
using event = ::ihipEvent_t*;              ///< is `hipEvent_t`
using graph = ::ihipGraph*;                ///< is `hipGraph_t`
using graph_node = ::hipGraphNode*;        ///< is `hipGraphNode_t`
using executable_graph = ::hipGraphExec*;  ///< is `hipGraphExec_t`
}  // namespace runnel::inline RUNNEL_ABI::native
#else
namespace runnel::inline RUNNEL_ABI::native {
struct host_stream;
struct host_event;
struct host_graph;
struct host_graph_node;
struct host_executable_graph;
using stream = host_stream*;                      ///< of a thread-backed device
using event = host_event*;                        ///< of a thread-backed device
using graph = host_graph*;                        ///< of a thread-backed device
using graph_node = host_graph_node*;              ///< of a thread-backed device
using executable_graph = host_executable_graph*;  ///< of a thread-backed device
}  // namespace runnel::inline RUNNEL_ABI::native
#endif
