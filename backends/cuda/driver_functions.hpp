// SPDX-License-Identifier: Apache-2.0
/// Which device a stream is on, by the CUDA runtime or, before 12.8, by the driver.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::rt {

#if CUDART_VERSION >= 12080
inline constexpr auto cuda_stream_device = &cudaStreamGetDevice;
#else
// The runtime had no such call; the stream's context is known to the driver only, which the library does not link.
template <class Function>
bool find_in_driver(const char* name, Function*& function) noexcept {
  void* address = nullptr;
#if CUDART_VERSION >= 12000
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t e = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#else
  const cudaError_t e = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault);  // 11.8, beneath HIP 5.2's NVIDIA platform
#endif
  function = reinterpret_cast<Function*>(address);
  return e == cudaSuccess && address != nullptr;
}

inline cudaError_t cuda_stream_device(cudaStream_t stream, int* device) noexcept {
  int (*context_of)(cudaStream_t, void**) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*device_of)(int*) = nullptr;
  if (!find_in_driver("cuStreamGetCtx", context_of) || !find_in_driver("cuCtxPushCurrent", push) ||
      !find_in_driver("cuCtxPopCurrent", pop) || !find_in_driver("cuCtxGetDevice", device_of)) {
    return cudaErrorNotSupported;
  }
  void* context = nullptr;
  int result = context_of(stream, &context);
  if (result == 0) result = push(context);
  if (result != 0) return static_cast<cudaError_t>(result);
  result = device_of(device);
  pop(&context);
  return static_cast<cudaError_t>(result);
}
#endif

}  // namespace runnel::inline RUNNEL_ABI::rt
