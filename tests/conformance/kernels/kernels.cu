// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <stdexcept>

namespace kernels {
namespace {

__global__ void double_and_add_all(int* numbers, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) double_and_add(numbers, i);
}

/// Nanoseconds.
__device__ long long now() {
  long long time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void busy(long long nanoseconds, int* flag) {
  const long long start = now();
  while (now() - start < nanoseconds) {
  }
  *flag = 1;
}

__global__ void meet(volatile int* mine, const volatile int* theirs, int* met,
                     long long nanoseconds) {
  const long long start = now();
  *mine = 1;
  while (*theirs == 0 && now() - start < nanoseconds) {
  }
  *met = *theirs;
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
  if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess)
    throw std::runtime_error(cudaGetErrorString(e));
}

}  // namespace

void launch_double_and_add(runnel::StreamRef stream, int* numbers, std::size_t count) {
  const runnel::DeviceGuard with{stream.device()};
  double_and_add_all<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream.native()>>>(
      numbers, count);
  require_launched();
}

void launch_busy(runnel::StreamRef stream, std::chrono::microseconds time, int* flag) {
  const runnel::DeviceGuard with{stream.device()};
  busy<<<1, 1, 0, stream.native()>>>(std::chrono::nanoseconds{time}.count(), flag);
  require_launched();
}

void launch_meet(runnel::StreamRef stream, int* mine, const int* theirs, int* met,
                 std::chrono::seconds limit) {
  const runnel::DeviceGuard with{stream.device()};
  meet<<<1, 1, 0, stream.native()>>>(mine, theirs, met, std::chrono::nanoseconds{limit}.count());
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
