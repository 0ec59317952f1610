// SPDX-License-Identifier: Apache-2.0
/// A kernel that takes a given time, for the Kokkos tests and benchmarks.
#pragma once

#include <chrono>

#include <Kokkos_Core.hpp>

namespace kokkos_tests {

/// Keeps one processor busy for so many nanoseconds.
struct Spin {
  long long nanoseconds;
  KOKKOS_FUNCTION void operator()(int) const {
    KOKKOS_IF_ON_HOST(
        (const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds{nanoseconds};
         while (std::chrono::steady_clock::now() < end){}))
    KOKKOS_IF_ON_DEVICE((const long long end = now() + nanoseconds; while (now() < end){}))
  }
  KOKKOS_FUNCTION static long long now() {
#if defined __CUDA_ARCH__
    long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
#elif defined __HIP_DEVICE_COMPILE__
    return wall_clock64() * 10;  // the clock has 100 MHz
#else
    return 0;
#endif
  }
};

}  // namespace kokkos_tests
