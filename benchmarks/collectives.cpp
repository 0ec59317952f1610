// SPDX-License-Identifier: Apache-2.0
// What a communicator costs beside raw NCCL, in turns in one program: launch.py -n 2
// bench-collectives, with a GPU for each process. Prints the median of 15 turns.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <runnel/communicator.hpp>
#include <runnel/runnel.hpp>
#include <vector>

using namespace runnel;

namespace {

constexpr int turns = 15;

void must(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "NCCL: %s\n", ncclGetErrorString(result));
  std::exit(1);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + turns / 2, values.end());
  return values[turns / 2];
}

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// Of one call: until it returns, and until its work is done.
struct Times {
  std::vector<double> call, whole;
  void measure(StreamRef stream, int calls, const std::function<void()>& one) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) one();
    call.push_back(microseconds_since(begin) / calls);
    stream.synchronize();
    whole.push_back(microseconds_since(begin) / calls);
  }
};

void measure(const char* name, int calls, StreamRef stream, bool prints,
             const std::function<void()>& raw, const std::function<void()>& ours) {
  Times of_raw, of_ours;
  raw();
  ours();
  stream.synchronize();
  for (int turn = 0; turn < turns; ++turn) {
    of_raw.measure(stream, calls, raw);
    of_ours.measure(stream, calls, ours);
  }
  if (!prints) return;
  const double a = median(of_raw.whole), b = median(of_ours.whole);
  std::printf(
      "all_reduce, %-8s raw %10.2f us, runnel %10.2f us, %5.3f of its speed; the call: raw %6.2f "
      "us, runnel %6.2f us\n",
      name, a, b, a / b, median(of_raw.call), median(of_ours.call));
}

}  // namespace

int main() {
  const World world = World::from_environment();
  Device{world.local_rank % Device::count()}.use();
  const Communicator all{world, {.engine = Engine::ccl}};
  ncclUniqueId id{};
  if (world.rank == 0) must(ncclGetUniqueId(&id));
  if (world.size > 1) world.broadcast(&id, sizeof id);
  ncclComm_t raw = nullptr;
  must(ncclCommInitRank(&raw, world.size, id, world.rank));

  const Stream stream;
  constexpr std::size_t most = std::size_t{1} << 28;
  DeviceBuffer<float> values{most, stream};
  fill(stream, values, 0.0F);
  stream.synchronize();
  struct Size {
    const char* name;
    std::size_t count;
    int calls;
  };
  for (const Size size : {Size{"8 B", 2, 1000}, Size{"1 MiB", std::size_t{1} << 18, 200},
                          Size{"16 MiB", std::size_t{1} << 22, 50},
                          Size{"256 MiB", std::size_t{1} << 26, 10}, Size{"1 GiB", most, 5}}) {
    const DeviceSpan<float> part = values.span().subspan(0, size.count);
    measure(
        size.name, size.calls, stream, world.rank == 0,
        [&] {
          must(ncclAllReduce(part.data(), part.data(), part.size(), ncclFloat, ncclSum, raw,
                             stream.native()));
        },
        [&] { all.all_reduce(stream, part); });
  }
  must(ncclCommDestroy(raw));
}
