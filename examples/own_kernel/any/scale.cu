// SPDX-License-Identifier: Apache-2.0
#include "scale.hpp"

__global__ void scale_kernel(runnel::DeviceSpan<float> x, float factor) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < x.size()) x[i] *= factor;
}

void scale(runnel::StreamRef stream, runnel::DeviceSpan<float> x, float factor) {
  stream.declare_reads(x);  // tell the race checker, which does not see into kernels
  stream.declare_writes(x);
  const auto blocks = static_cast<unsigned>((x.size() + 255) / 256);
  scale_kernel<<<blocks, 256, 0, stream.native()>>>(x, factor);
  runnel::check_launch("scale_kernel");
}
