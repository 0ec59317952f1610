// SPDX-License-Identifier: Apache-2.0
// On CUDA, nvcc compiles the kernels, and they are launched on the stream's native handle.
#include "launch_byte_kernel.hpp"

#include "failure.hpp"

#include <runnel/copy.hpp>

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
__global__ void count_bytes_kernel(const unsigned char* in, std::size_t size, ByteCount* counts) {
  __shared__ Scratch scratch;
  count_bytes(Grid{}, scratch, in, size, counts);
}

// Constants, so that the sum of floating-point numbers is the same on every GPU.
constexpr unsigned sum_blocks = 256, sum_threads = 256;

template <class Number>
__global__ void sum_numbers_kernel(const Number* in, std::size_t size, SumOf<Number>* sums) {
  // Declared as bytes, because shared memory of a block cannot have constructors.
  __shared__ alignas(SumOf<Number>) unsigned char scratch[sum_threads * sizeof(SumOf<Number>)];
  sum_numbers(Grid{}, reinterpret_cast<SumOf<Number>*>(scratch), in, size, sums);
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

void launch_count(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                  runnel::DeviceSpan<ByteCount> counts) {
  const runnel::DeviceGuard with{stream.device()};
  runnel::fill(stream, counts, ByteCount{0});
  count_bytes_kernel<<<blocks_on(stream.device()), 512, 0, stream.native()>>>(in.data(), in.size(),
                                                                              counts.data());
  require_launched();
}

std::size_t sums_of_a_chunk() noexcept { return sum_blocks; }

template <class Number>
void launch_sum(runnel::StreamRef stream, runnel::DeviceSpan<const Number> in,
                runnel::DeviceSpan<SumOf<Number>> sums) {
  const runnel::DeviceGuard with{stream.device()};
  sum_numbers_kernel<<<sum_blocks, sum_threads, 0, stream.native()>>>(in.data(), in.size(),
                                                                      sums.data());
  require_launched();
}
template void launch_sum<std::uint8_t>(runnel::StreamRef, runnel::DeviceSpan<const std::uint8_t>,
                                       runnel::DeviceSpan<IntegerSum>);
template void launch_sum<std::int32_t>(runnel::StreamRef, runnel::DeviceSpan<const std::int32_t>,
                                       runnel::DeviceSpan<IntegerSum>);
template void launch_sum<std::int64_t>(runnel::StreamRef, runnel::DeviceSpan<const std::int64_t>,
                                       runnel::DeviceSpan<IntegerSum>);
template void launch_sum<float>(runnel::StreamRef, runnel::DeviceSpan<const float>,
                                runnel::DeviceSpan<FloatSum>);
template void launch_sum<double>(runnel::StreamRef, runnel::DeviceSpan<const double>,
                                 runnel::DeviceSpan<FloatSum>);

void launch_double_and_add_one(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                               runnel::DeviceSpan<unsigned char> out, unsigned rounds) {
  const runnel::DeviceGuard with{stream.device()};
  double_and_add_one_kernel<<<blocks_on(stream.device()), 512, 0, stream.native()>>>(
      in.data(), out.data(), in.size(), rounds);
  require_launched();
}

}  // namespace tool
