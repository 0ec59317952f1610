// SPDX-License-Identifier: Apache-2.0
// Your own kernel on a runnel stream: `native()` returns a cudaStream_t.
#include <runnel/runnel.hpp>

#include <cstdio>
#include <vector>

using namespace runnel;

__global__ void scale(float* x, std::size_t n, float factor) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}

int main() {
  constexpr std::size_t n = 1 << 20;
  std::vector<float> host(n, 2.0F);
  Device gpu{0};
  Stream up{gpu}, run{gpu, {.priority = Priority::high}};

  DeviceBuffer<float> x(n, up);
  copy(up, x, host);  // pageable memory; the call returns at once
  run.wait_stream(up);
  scale<<<n / 256, 256, 0, run.native()>>>(x.data(), n, 21.0F);
  copy(run, host, x);
  run.synchronize();

  std::printf("%g %g\n", host.front(), host.back());
  return host.front() == 42.0F && host.back() == 42.0F ? 0 : 1;
}
