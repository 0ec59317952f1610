// SPDX-License-Identifier: Apache-2.0
/// Device work for tests: one text for each body, launched on a GPU by kernels.cu and on the host backend by kernels_host.cpp.
#pragma once

#include <runnel/runnel.hpp>

#include <chrono>
#include <cstddef>

#ifdef __CUDACC__
#define KERNEL_BODY __host__ __device__ inline
#else
#define KERNEL_BODY inline
#endif

namespace kernels {

/// numbers[i] = 2 * numbers[i] + 1, which shows how often it ran, and in which order with a fill.
KERNEL_BODY void double_and_add(int* numbers, std::size_t i) { numbers[i] = 2 * numbers[i] + 1; }

void launch_double_and_add(runnel::StreamRef stream, int* numbers, std::size_t count);
/// Keeps one processor of the device busy for so long, then sets `*flag` to 1.
void launch_busy(runnel::StreamRef stream, std::chrono::microseconds time, int* flag);

}  // namespace kernels
