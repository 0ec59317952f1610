// SPDX-License-Identifier: Apache-2.0
// A resource of CCCL's beneath a DeviceBuffer, and runnel's memory as a resource of CCCL's.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE  // CCCL until 3.0 asks for it
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda/version>
#include <iostream>
#include <runnel/resource_adaptors.hpp>
#include <runnel/runnel.hpp>
#include <vector>

/// runnel's memory as a resource of CCCL's, which asks which memory it gives.
struct DeviceMemory : runnel::NativeDeviceResource {
  using NativeDeviceResource::NativeDeviceResource;
  friend void get_property(const DeviceMemory&, cuda::mr::device_accessible) noexcept {}
};

#if CCCL_MAJOR_VERSION < 3 || (CCCL_MAJOR_VERSION == 3 && CCCL_MINOR_VERSION < 1)
static_assert(cuda::mr::async_resource_with<DeviceMemory, cuda::mr::device_accessible>);
using MemoryRef = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#else
static_assert(cuda::mr::resource_with<DeviceMemory, cuda::mr::device_accessible>);
using MemoryRef = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#endif
static_assert(runnel::StreamOrderedResource<MemoryRef>);

int main() {
  const runnel::Stream stream;
  DeviceMemory memory{stream.device()};
  MemoryRef theirs{memory};  // what libraries of CCCL's users take

  runnel::DeviceBuffer<int> buffer{1000, theirs, stream};
  std::vector<int> result(buffer.size());
  runnel::fill(stream, buffer, 7);
  runnel::copy(stream, result, buffer);
  stream.synchronize();
  const bool same = result == std::vector<int>(1000, 7);
  std::cout << (same ? "the values came back\n" : "something is wrong\n");
  return same ? 0 : 1;
}
