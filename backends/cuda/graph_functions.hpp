// SPDX-License-Identifier: Apache-2.0
/// CUDA's calls for captures and graphs whose signature depends on the version: 12, 13, and 11.8
/// below HIP's NVIDIA platform.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

#include <cstddef>
#include <memory>
#include <new>

namespace runnel::inline RUNNEL_ABI::rt {

inline cudaError_t cuda_capture_number(cudaStream_t stream, unsigned long long* number) noexcept {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  unsigned long long found = 0;
  const cudaError_t e = cudaStreamGetCaptureInfo(stream, &capture, &found);
  *number = capture == cudaStreamCaptureStatusActive ? found : 0;
  return e;
}

/// The capture that a stream takes part in.
struct Captured {
  cudaGraph_t graph = nullptr;  // null: none, or an invalidated one
  const cudaGraphNode_t* before = nullptr;
  std::size_t count = 0;  // the number of nodes that the stream's next node depends on
};
inline cudaError_t cuda_find_capture(cudaStream_t stream, Captured& found) noexcept {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t e = cudaStreamGetCaptureInfo(stream, &capture, &number, &found.graph,
                                                 &found.before, nullptr, &found.count);
#elif CUDART_VERSION >= 12000
  const cudaError_t e = cudaStreamGetCaptureInfo(stream, &capture, &number, &found.graph,
                                                 &found.before, &found.count);
#else
  const cudaError_t e = cudaStreamGetCaptureInfo_v2(stream, &capture, &number, &found.graph,
                                                    &found.before, &found.count);
#endif
  if (e != cudaSuccess || capture != cudaStreamCaptureStatusActive) found = {};
  return e;
}
/// Makes the stream's next node depend on this node only.
inline cudaError_t cuda_continue_after(cudaStream_t stream, cudaGraphNode_t node) noexcept {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                             cudaStreamSetCaptureDependencies);
#else
  return cudaStreamUpdateCaptureDependencies(stream, &node, 1, cudaStreamSetCaptureDependencies);
#endif
}

/// Makes the graph, its copies and its launches own the object together. Destroys it after an
/// error.
inline cudaError_t cuda_graph_keep(cudaGraph_t graph, void* object,
                                   void (*destroy)(void*)) noexcept {
  cudaUserObject_t owner = nullptr;
  cudaError_t e = cudaUserObjectCreate(&owner, object, destroy, 1, cudaUserObjectNoDestructorSync);
  if (e != cudaSuccess) return destroy(object), e;
  e = cudaGraphRetainUserObject(graph, owner, 1, cudaGraphUserObjectMove);
  if (e != cudaSuccess) static_cast<void>(cudaUserObjectRelease(owner, 1));
  return e;
}

inline cudaError_t cuda_graph_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                    std::size_t* count) noexcept {
#if CUDART_VERSION >= 12030
  // Edges between kernels may carry data. The runtime does not list them without memory for it.
  std::unique_ptr<cudaGraphEdgeData[]> data;
  if (from != nullptr) {
    data.reset(new (std::nothrow) cudaGraphEdgeData[*count]);
    if (data == nullptr) return cudaErrorMemoryAllocation;
  }
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, data.get(), count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, data.get(), count);
#endif
#else
  return cudaGraphGetEdges(graph, from, to, count);
#endif
}

inline cudaError_t cuda_graph_update(cudaGraphExec_t executable, cudaGraph_t graph) noexcept {
#if CUDART_VERSION >= 12000
  cudaGraphExecUpdateResultInfo why{};
  return cudaGraphExecUpdate(executable, graph, &why);
#else
  cudaGraphNode_t differs = nullptr;
  cudaGraphExecUpdateResult why{};
  return cudaGraphExecUpdate(executable, graph, &differs, &why);
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::rt
