// SPDX-License-Identifier: Apache-2.0
// A kernel of your own on runnel's streams, compiled by nvcc. CMakeLists.txt and meson.build beside
// it are whole projects; docs/own-kernels.md explains them.
#include <runnel/runnel.hpp>

#include <chrono>
#include <cstdio>
#include <vector>

using namespace runnel;

__global__ void scale_kernel(DeviceSpan<float> x, float factor) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < x.size()) x[i] *= factor;
}

// What launches a kernel takes a stream, and does not wait. `native()` is a cudaStream_t.
void scale(StreamRef stream, DeviceSpan<float> x, float factor) {
  stream.declare_reads(x);  // tell the race checker, which does not see into kernels
  stream.declare_writes(x);
  const auto blocks = static_cast<unsigned>((x.size() + 255) / 256);
  scale_kernel<<<blocks, 256, 0, stream.native()>>>(x, factor);
  check_launch("scale_kernel");  // the launch itself returns nothing
}

int main() {
  if (Device::count() == 0) {
    std::printf("%s: no device: %s\n", RUNNEL_BACKEND, Device::why_no_device().c_str());
    return 0;
  }
  std::vector<float> values(1 << 20, 2.0F);
  Stream up, run;
  DeviceBuffer<float> x(values.size(), up);
  copy(up, x, values);  // ordinary memory; the call returns at once
  run.wait_stream(up);
  scale(run, x, 1.0F);  // the first launch loads the kernel

  TimedEvent start, stop;
  run.record_event(start);
  scale(run, x, 21.0F);
  run.record_event(stop);
  copy(run, values, x);
  run.synchronize();  // now `values` may be read

  const std::chrono::duration<double, std::micro> took = stop - start;
  const bool right = values.front() == 42.0F && values.back() == 42.0F;
  std::printf("the kernel took %.1f us\n", took.count());
  std::printf("%s: %s\n", RUNNEL_BACKEND, right ? "each number was scaled" : "WRONG");
  return right ? 0 : 1;
}
