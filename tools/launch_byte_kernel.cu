// SPDX-License-Identifier: Apache-2.0
// On CUDA the kernel's text is compiled by nvcc and launched on the stream's native handle.
#include "launch_byte_kernel.hpp"

#include "failure.hpp"

namespace tool {

namespace {
struct Grid {
  __device__ static unsigned rank_in_block() { return threadIdx.x; }
  __device__ static unsigned block_size() { return blockDim.x; }
  __device__ static std::size_t rank() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
  __device__ static std::size_t size() { return std::size_t{gridDim.x} * blockDim.x; }
  __device__ static void synchronize_block() { __syncthreads(); }
  template <class T>
  __device__ static void add(T& to, T number) {
    atomicAdd(&to, number);
  }
};

__global__ void kernel(unsigned char* bytes, std::size_t size, ByteMap map, ByteCount* counts) {
  __shared__ Scratch scratch;
  map_and_count(Grid{}, scratch, bytes, size, map, counts);
}
}  // namespace

const char* why_no_byte_kernel() noexcept { return nullptr; }

void launch_byte_kernel(runnel::StreamRef stream, runnel::DeviceSpan<unsigned char> bytes, const ByteMap& map,
                        runnel::DeviceSpan<ByteCount> counts) {
  const runnel::DeviceGuard with{stream.device()};
  const auto blocks = static_cast<unsigned>(4 * stream.device().multiprocessor_count());
  kernel<<<blocks, 512, 0, stream.native()>>>(bytes.data(), bytes.size(), map, counts.data());
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Failure(std::string{"the kernel could not be launched: "} + cudaGetErrorString(status));
}

}  // namespace tool
