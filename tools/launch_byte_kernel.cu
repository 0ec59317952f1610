// SPDX-License-Identifier: Apache-2.0
// On CUDA, nvcc compiles the kernels, and they are launched on the stream's native handle.
#include "launch_byte_kernel.hpp"

#include "failure.hpp"

namespace tool {

namespace {
struct Grid {
  __device__ static unsigned rank_in_block() { return threadIdx.x; }
  __device__ static unsigned block_size() { return blockDim.x; }
  __device__ static std::size_t rank() {
    return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  }
  __device__ static std::size_t size() { return std::size_t{gridDim.x} * blockDim.x; }
  __device__ static void synchronize_block() { __syncthreads(); }
  template <class T>
  __device__ static void add(T& to, T number) {
    atomicAdd(&to, number);
  }
};

__global__ void map_and_count_kernel(const unsigned char* in, unsigned char* out, std::size_t size,
                                     ByteMap map, ByteCount* counts) {
  __shared__ Scratch scratch;
  map_and_count(Grid{}, scratch, in, out, size, map, counts);
}
__global__ void double_and_add_one_kernel(const unsigned char* in, unsigned char* out,
                                          std::size_t size, unsigned rounds) {
  double_and_add_one(Grid{}, in, out, size, rounds);
}

unsigned blocks_on(runnel::Device device) {
  return static_cast<unsigned>(4 * device.multiprocessor_count());
}

void require_launched() {
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Failure(std::string{"the kernel could not be launched: "} + cudaGetErrorString(status));
}
}  // namespace

const char* why_no_byte_kernel() noexcept { return nullptr; }

void launch_map_and_count(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                          runnel::DeviceSpan<unsigned char> out, const ByteMap& map,
                          runnel::DeviceSpan<ByteCount> counts) {
  const runnel::DeviceGuard with{stream.device()};
  map_and_count_kernel<<<blocks_on(stream.device()), 512, 0, stream.native()>>>(
      in.data(), out.data(), in.size(), map, counts.data());
  require_launched();
}

void launch_double_and_add_one(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                               runnel::DeviceSpan<unsigned char> out, unsigned rounds) {
  const runnel::DeviceGuard with{stream.device()};
  double_and_add_one_kernel<<<blocks_on(stream.device()), 512, 0, stream.native()>>>(
      in.data(), out.data(), in.size(), rounds);
  require_launched();
}

}  // namespace tool
