// SPDX-License-Identifier: Apache-2.0
// For a CUDA program that copies from and to ordinary memory by cudaMemcpy: give this header to
// nvcc by `-include`, and nothing of the program has to change. With PLAIN defined the calls stay
// the runtime's. Both builds print how long the copies took, the time from the first to the last of
// them, and a sum of what came back.
#pragma once
#include <cuda_runtime.h>

#ifndef PLAIN
#include <runnel/runnel.hpp>
#endif

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace programs {

using Clock = std::chrono::steady_clock;
inline double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

struct Times {
  Clock::time_point first{}, last{};
  Clock::duration copies{};
  std::size_t count = 0, bytes = 0;
  std::uint64_t sum = 0;
  ~Times() {
    std::printf("copies %zu of %.1f MB: %.1f ms of %.1f ms; sum %016llx\n", count,
                static_cast<double>(bytes) / 1e6, milliseconds(copies), milliseconds(last - first),
                static_cast<unsigned long long>(sum));
  }
};
inline Times times;

inline void add_up(const void* memory, std::size_t bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i + sizeof word <= bytes; i += 512) {
    std::memcpy(&word, static_cast<const char*>(memory) + i, sizeof word);
    times.sum = times.sum * 31 + word;
  }
}

/// cudaMemcpy, which returns when the source may change and the destination may be read.
inline cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  cudaDeviceSynchronize();  // so that kernels do not count as a part of the copy
  const auto start = Clock::now();
  if (times.count++ == 0) times.first = start;
#ifdef PLAIN
  const cudaError_t status = cudaMemcpy(to, from, bytes, kind);
#else
  const cudaError_t status = cudaSuccess;
  const runnel::StreamRef stream = runnel::Device::current().default_stream();
  runnel::copy_bytes(stream, to, from, bytes);
  stream.synchronize();
#endif
  times.last = Clock::now();
  times.copies += times.last - start;
  times.bytes += bytes;
  if (kind == cudaMemcpyDeviceToHost && times.count % 16 < 4) {
    add_up(to, bytes);
    times.first += Clock::now() - times.last;  // the sum takes no time
    times.last = Clock::now();
  }
  return status;
}

}  // namespace programs

#define cudaMemcpy(to, from, bytes, kind) programs::copy(to, from, bytes, kind)
#define cudaThreadSynchronize cudaDeviceSynchronize  // CUDA 13 has the new name only
