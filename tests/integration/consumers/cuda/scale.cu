// SPDX-License-Identifier: Apache-2.0
// A kernel on a runnel stream, compiled by nvcc. `native()` returns a cudaStream_t.
#include <runnel/runnel.hpp>

#include <cstdio>
#include <vector>

__global__ void scale(float* x, std::size_t n, float factor) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}

int main() {
  if (runnel::Device::count() == 0) {
    std::printf("%s: no device: %s\n", RUNNEL_BACKEND, runnel::Device::why_no_device().c_str());
    return 0;
  }
  std::vector<float> values(1 << 20, 2.0F);
  runnel::Stream stream;
  runnel::DeviceBuffer<float> x(values.size(), stream);
  runnel::copy(stream, x, values);
  scale<<<values.size() / 256, 256, 0, stream.native()>>>(x.data(), values.size(), 21.0F);
  runnel::copy(stream, values, x);
  stream.synchronize();
  const bool right = values.front() == 42.0F && values.back() == 42.0F;
  std::printf("%s: %s\n", RUNNEL_BACKEND, right ? "the same values came back, scaled" : "WRONG");
  return right ? 0 : 1;
}
