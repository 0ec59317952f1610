// SPDX-License-Identifier: Apache-2.0
/// Kernels for tests. Each body is written once. kernels.cu launches it on a GPU, kernels_host.cpp
/// on the host backend.
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

/// numbers[i] = 2 * numbers[i] + 1. The result shows how often the kernel ran, and in which order
/// with a fill.
KERNEL_BODY void double_and_add(int* numbers, std::size_t i) { numbers[i] = 2 * numbers[i] + 1; }

void launch_double_and_add(runnel::StreamRef stream, int* numbers, std::size_t count);
/// Keeps one processor of the device busy for `time`, then sets `*flag` to 1.
void launch_busy(runnel::StreamRef stream, std::chrono::microseconds time, int* flag);
/// Sets `*mine` to 1, and waits until `*theirs` is not 0, at most for `limit`. Then sets `*met` to
/// 1 if it is not, else to 0.
void launch_meet(runnel::StreamRef stream, int* mine, const int* theirs, int* met,
                 std::chrono::seconds limit);
/// Sets noted[i] to 1 for each multiprocessor i that runs a block of the kernel, which has many
/// blocks of a fifth of a millisecond. On the host backend it notes the first one.
void launch_note_multiprocessors(runnel::StreamRef stream, int* noted);
/// A kernel whose block is larger than any device takes. Not checked.
void launch_too_large(runnel::StreamRef stream);
/// Ends the process's work on the device with an error. Only on a GPU.
void launch_trap(runnel::StreamRef stream);

}  // namespace kernels
