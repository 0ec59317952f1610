// SPDX-License-Identifier: Apache-2.0
/// What only the CUDA driver can do. The library does not link it: the runtime is asked for each function's address.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::rt {

template <class Function>
Function* find_in_driver(const char* name) noexcept {
  void* address = nullptr;
#if CUDART_VERSION >= 12050
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t e = cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found);
#elif CUDART_VERSION >= 12000
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t e = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#else
  const cudaError_t e = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault);  // 11.8, beneath HIP 5.2's NVIDIA platform
#endif
  return e == cudaSuccess ? reinterpret_cast<Function*>(address) : nullptr;
}

// The runtime fills by bytes only.
template <class Value>
cudaError_t cuda_fill(const char* name, void* to, Value value, std::size_t count, cudaStream_t stream) noexcept {
  using Function = int(unsigned long long, Value, std::size_t, cudaStream_t);
  static constinit std::atomic<Function*> known{nullptr};
  Function* fill = known.load(std::memory_order_relaxed);
  int result = cudaErrorDeviceUninitialized;
  if (fill != nullptr) result = fill(reinterpret_cast<std::uintptr_t>(to), value, count, stream);
  if (result == cudaErrorDeviceUninitialized) {
    // The first time in this process, or in this thread: no driver function makes the device's context current, cudaSetDevice does.
    int device = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaSetDevice(device);
    if (e != cudaSuccess) return e;
    fill = find_in_driver<Function>(name);
    if (fill == nullptr) return cudaErrorNotSupported;
    known.store(fill, std::memory_order_relaxed);
    result = fill(reinterpret_cast<std::uintptr_t>(to), value, count, stream);
  }
  return static_cast<cudaError_t>(result);
}
inline cudaError_t cuda_fill_16(void* to, std::uint32_t value, std::size_t count, cudaStream_t stream) noexcept {
  return cuda_fill("cuMemsetD16Async", to, static_cast<unsigned short>(value), count, stream);
}
inline cudaError_t cuda_fill_32(void* to, std::uint32_t value, std::size_t count, cudaStream_t stream) noexcept {
  return cuda_fill("cuMemsetD32Async", to, value, count, stream);
}

#if CUDART_VERSION >= 12080
inline constexpr auto cuda_stream_device = &cudaStreamGetDevice;
#else
// Before 12.8 only the driver knows, by way of the stream's context.
inline cudaError_t cuda_stream_device(cudaStream_t stream, int* device) noexcept {
  const auto context_of = find_in_driver<int(cudaStream_t, void**)>("cuStreamGetCtx");
  const auto push = find_in_driver<int(void*)>("cuCtxPushCurrent");
  const auto pop = find_in_driver<int(void**)>("cuCtxPopCurrent");
  const auto device_of = find_in_driver<int(int*)>("cuCtxGetDevice");
  if (context_of == nullptr || push == nullptr || pop == nullptr || device_of == nullptr) return cudaErrorNotSupported;
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
