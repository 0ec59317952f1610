// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <stdexcept>

namespace kernels {
namespace {

__global__ void double_and_add_all(int* numbers, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) double_and_add(numbers, i);
}

__global__ void busy(long long nanoseconds, int* flag) {
  unsigned long long start = 0;
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < static_cast<unsigned long long>(nanoseconds));
  *flag = 1;
}

__global__ void note(int* noted) {
  unsigned multiprocessor = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  int flag = 0;
  const long long begin = clock64();
  while (clock64() - begin < 300'000) flag = 1;
  noted[multiprocessor] = flag;
}

__global__ void trap() { __trap(); }

void require_launched() {
  if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess) throw std::runtime_error(cudaGetErrorString(e));
}

}  // namespace

void launch_double_and_add(runnel::StreamRef stream, int* numbers, std::size_t count) {
  const runnel::DeviceGuard with{stream.device()};
  double_and_add_all<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream.native()>>>(numbers, count);
  require_launched();
}

void launch_busy(runnel::StreamRef stream, std::chrono::microseconds time, int* flag) {
  const runnel::DeviceGuard with{stream.device()};
  busy<<<1, 1, 0, stream.native()>>>(std::chrono::nanoseconds{time}.count(), flag);
  require_launched();
}

void launch_note_multiprocessors(runnel::StreamRef stream, int* noted) {
  const runnel::DeviceGuard with{stream.device()};
  note<<<2000, 1024, 0, stream.native()>>>(noted);
  require_launched();
}

void launch_trap(runnel::StreamRef stream) {
  const runnel::DeviceGuard with{stream.device()};
  trap<<<1, 1, 0, stream.native()>>>();
  require_launched();
}

}  // namespace kernels
