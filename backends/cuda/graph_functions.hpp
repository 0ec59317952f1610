// SPDX-License-Identifier: Apache-2.0
/// Those of CUDA's calls for captures and graphs whose shape depends on the version: 12 and 13, and 11.8 beneath HIP's NVIDIA platform.
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

inline cudaError_t cuda_graph_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, std::size_t* count) noexcept {
#if CUDART_VERSION >= 12030
  // Edges between kernels may carry data, and without room for it the runtime refuses to list them.
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
