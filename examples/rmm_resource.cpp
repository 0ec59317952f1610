// SPDX-License-Identifier: Apache-2.0
// RMM's pool beneath a DeviceBuffer, and runnel's memory beneath RMM's containers. For RMM 26.10,
// whose resources are CCCL's.
#include <cstddef>
#include <cuda/memory_resource>
#include <iostream>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/resource_ref.hpp>
#include <runnel/resource_adaptors.hpp>
#include <runnel/runnel.hpp>
#include <utility>
#include <vector>

/// runnel's memory as a resource of RMM's: CCCL asks which memory it gives.
struct DeviceMemory : runnel::NativeDeviceResource {
  using NativeDeviceResource::NativeDeviceResource;
  friend void get_property(const DeviceMemory&, cuda::mr::device_accessible) noexcept {}
};
static_assert(cuda::mr::resource_with<DeviceMemory, cuda::mr::device_accessible>);
static_assert(runnel::StreamOrderedResource<rmm::device_async_resource_ref>);

int main() {
  const runnel::Stream stream;
  const std::vector<int> values(1000, 7);
  std::vector<int> first(values.size()), second(values.size());

  rmm::mr::pool_memory_resource pool{rmm::mr::cuda_async_memory_resource{}, std::size_t{1} << 20};
  // a copy of the handle; the pool is shared
  runnel::DeviceBuffer<int> of_pool{values.size(), pool, stream};
  runnel::DeviceBuffer<int> of_reference{values.size(), rmm::device_async_resource_ref{pool},
                                         stream};
  runnel::copy(stream, of_pool, values);
  runnel::copy(stream, of_reference, of_pool);
  runnel::copy(stream, first, of_reference);

  DeviceMemory ours{stream.device()};
  rmm::device_uvector<int> theirs{values.size(), cuda::stream_ref{stream.native()},
                                  rmm::device_async_resource_ref{ours}};
  runnel::copy(stream, runnel::DeviceSpan<int>{theirs.data(), theirs.size()}, of_pool);
  runnel::copy(stream, second, runnel::DeviceSpan<const int>{theirs.data(), theirs.size()});
  stream.synchronize();

  const bool same = first == values && second == values;
  std::cout << (same ? "the same values came back\n" : "something is wrong\n");
  return same ? 0 : 1;
}
