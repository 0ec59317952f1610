// SPDX-License-Identifier: Apache-2.0
// A loop of allocate, work, free, synchronize, by the library and by raw calls. A pool that gives
// unused memory back at each wait, as the default one, pays for new mappings in each round.
// `threshold` lets it keep all of it. The library has a pool of its own, which keeps it.
#include <runnel/runnel.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "must.hpp"
#include "raw_runtime.hpp"

namespace {

namespace rt = runnel::rt;
namespace raw = bench::raw;
using bench::must;
using Clock = std::chrono::steady_clock;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t touched = mib;
constexpr std::size_t all = std::numeric_limits<std::size_t>::max();

void set_threshold(std::uint64_t bytes) {
  rt::memory_pool pool{};
  must(rt::device_get_default_memory_pool(&pool, 0));
  must(rt::memory_pool_set_attribute(pool, rt::memory_pool_release_threshold, &bytes));
}

void raw_round(runnel::native::stream stream, std::size_t bytes) {
  void* memory = nullptr;
  must(raw::malloc_async(&memory, bytes, stream));
  must(raw::fill_async(memory, 1, touched, stream));
  must(raw::free_async(memory, stream));
  must(raw::stream_synchronize(stream));
}

void own_round(const runnel::Stream& stream, std::size_t bytes) {
  {
    runnel::DeviceBuffer<unsigned char> memory{bytes, stream};
    runnel::fill_bytes(stream, memory.data(), 1, touched);
  }
  stream.synchronize();
}

/// The median of some measurements, in microseconds a round.
template <class Round>
double time_of(Round round) {
  constexpr int rounds = 20;
  std::vector<double> times;
  for (int repeat = 0; repeat < 9; ++repeat) {
    const auto begin = Clock::now();
    for (int i = 0; i < rounds; ++i) round();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
                    rounds);
  }
  std::ranges::nth_element(times, times.begin() + 4);
  return times[4];
}

}  // namespace

int main() {
  const runnel::Stream stream;
  const runnel::DeviceResource resource{stream.device()};
  std::printf("us a round             raw   raw, threshold      runnel\n");
  for (const std::size_t bytes : {mib, 64 * mib, 1024 * mib}) {
    const auto raw_loop = [&] { raw_round(stream.native(), bytes); };
    const auto own_loop = [&] { own_round(stream, bytes); };
    set_threshold(0);
    const double plain = time_of(raw_loop), own = time_of(own_loop);
    set_threshold(all);
    const double kept = time_of(raw_loop);
    set_threshold(0);
    std::printf("%6zu MiB     %13.1f %16.1f %11.1f\n", bytes / mib, plain, kept, own);
    resource.trim();
  }
  return 0;
}
