// SPDX-License-Identifier: Apache-2.0
/// Prefetches and advice for managed memory. CUDA 13 replaced the device number by a location.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::rt {

#if CUDART_VERSION >= 13000
/// Negative: the host.
inline cudaMemLocation managed_location(int device) noexcept {
  cudaMemLocation location{};
  location.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = device < 0 ? 0 : device;
  return location;
}
inline cudaError_t cuda_prefetch(const void* memory, std::size_t bytes, int device,
                                 cudaStream_t stream) noexcept {
  return cudaMemPrefetchAsync(memory, bytes, managed_location(device), 0, stream);
}
inline cudaError_t cuda_advise(const void* memory, std::size_t bytes, int advice,
                               int device) noexcept {
  return cudaMemAdvise(memory, bytes, static_cast<cudaMemoryAdvise>(advice),
                       managed_location(device));
}
#else
static_assert(cudaCpuDeviceId == -1);
inline cudaError_t cuda_prefetch(const void* memory, std::size_t bytes, int device,
                                 cudaStream_t stream) noexcept {
  return cudaMemPrefetchAsync(memory, bytes, device, stream);
}
inline cudaError_t cuda_advise(const void* memory, std::size_t bytes, int advice,
                               int device) noexcept {
  return cudaMemAdvise(memory, bytes, static_cast<cudaMemoryAdvise>(advice), device);
}
#endif

}  // namespace runnel::inline RUNNEL_ABI::rt
