// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

namespace kernels {
namespace {

__global__ void double_and_add_all(runnel::DeviceSpan<int> numbers) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < numbers.size()) double_and_add(&numbers[i], 0);
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

}  // namespace

void launch_double_and_add(runnel::StreamRef stream, int* numbers, std::size_t count) {
  const runnel::DeviceGuard with{stream.device()};
  double_and_add_all<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream.native()>>>(
      runnel::DeviceSpan<int>{numbers, count});
  runnel::check_launch("double_and_add_all");
}

void launch_busy(runnel::StreamRef stream, std::chrono::microseconds time, int* flag) {
  const runnel::DeviceGuard with{stream.device()};
  busy<<<1, 1, 0, stream.native()>>>(std::chrono::nanoseconds{time}.count(), flag);
  runnel::check_launch("busy");
}

void launch_meet(runnel::StreamRef stream, int* mine, const int* theirs, int* met,
                 std::chrono::seconds limit) {
  const runnel::DeviceGuard with{stream.device()};
  meet<<<1, 1, 0, stream.native()>>>(mine, theirs, met, std::chrono::nanoseconds{limit}.count());
  runnel::check_launch("meet");
}

void launch_note_multiprocessors(runnel::StreamRef stream, int* noted) {
  const runnel::DeviceGuard with{stream.device()};
  note<<<2000, 1024, 0, stream.native()>>>(noted);
  runnel::check_launch("note");
}

void launch_too_large(runnel::StreamRef stream) { trap<<<1, 100'000, 0, stream.native()>>>(); }

void launch_trap(runnel::StreamRef stream) {
  const runnel::DeviceGuard with{stream.device()};
  trap<<<1, 1, 0, stream.native()>>>();
  runnel::check_launch("trap");
}

}  // namespace kernels
