// SPDX-License-Identifier: Apache-2.0
#include "scale.hpp"

__global__ void scale_kernel(runnel::DeviceSpan<const float> in, runnel::DeviceSpan<float> out) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < in.size()) out[i] = 2 * in[i] + 1;
}

void scale(runnel::StreamRef stream, runnel::DeviceSpan<const float> in,
           runnel::DeviceSpan<float> out) {
  stream.declare_reads(in);
  stream.declare_writes(out);
  const auto blocks = static_cast<unsigned>((in.size() + 255) / 256);
  scale_kernel<<<blocks, 256, 0, stream.native()>>>(in, out);
  runnel::check_launch("scale_kernel");
}
