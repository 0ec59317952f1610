// SPDX-License-Identifier: Apache-2.0
// What a torch extension does: work on torch's current stream, in memory of torch's allocator.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <iostream>
#include <runnel/runnel.hpp>
#include <vector>

namespace allocator = c10::cuda::CUDACachingAllocator;

int main() {
  const c10::cuda::CUDAStream theirs = c10::cuda::getCurrentCUDAStream(0);
  allocator::init(c10::cuda::device_count());
  const runnel::StreamRef stream =
      runnel::StreamRef::from_native(theirs.stream(), runnel::Device{theirs.device_index()});
  const std::vector<float> values(1000, 2.5F);
  std::vector<float> result(values.size());

  auto* const memory = static_cast<float*>(
      allocator::raw_alloc_with_stream(values.size() * sizeof(float), theirs.stream()));
  const runnel::DeviceSpan<float> x{memory, values.size()};
  runnel::copy(stream, x, values);  // returns at once
  runnel::copy(stream, result, x);
  allocator::raw_delete(memory);  // torch gives it to later work of this stream only
  stream.synchronize();
  std::cout << (result == values ? "the same values came back\n" : "something is wrong\n");
  return result == values ? 0 : 1;
}
