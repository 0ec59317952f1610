// SPDX-License-Identifier: Apache-2.0
// What a communicator costs beside raw MPI, in turns in one program: mpirun -n 2
// benchmark_communicator. Prints the median of 15 turns.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <runnel/communicator.hpp>
#include <runnel/mpi.hpp>
#include <runnel/runnel.hpp>
#include <vector>

using namespace runnel;

namespace {

constexpr int turns = 15;

double microseconds(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + turns / 2, values.end());
  return values[turns / 2];
}

struct Row {
  const char* name;
  int calls;
  std::function<void()> raw, ours;
};

void measure(const Row& row, bool prints) {
  std::vector<double> raw, ours;
  for (int turn = 0; turn < turns; ++turn) {
    raw.push_back(microseconds(row.raw) / row.calls);
    ours.push_back(microseconds(row.ours) / row.calls);
  }
  if (prints)
    std::printf("%-40s raw %9.2f us, runnel %9.2f us, %5.2f x\n", row.name, median(raw),
                median(ours), median(ours) / median(raw));
}

void measure_all() {
  const Communicator all{mpi::world(), {.engine = Engine::mpi}};
  const Stream stream;
  constexpr std::size_t most = std::size_t{8} << 20;
  PinnedBuffer<double> values{most};  // MPI may not be able to read a device's memory
  DeviceBuffer<double> buffer{most, stream}, spare{most, stream};
  std::fill_n(values.data(), most, 1.0);
  fill(stream, buffer, 1.0);
  stream.synchronize();
  const auto raw = [&](std::size_t count, int calls) {
    return [&values, count, calls] {
      for (int i = 0; i < calls; ++i)
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count), MPI_DOUBLE, MPI_MAX,
                      MPI_COMM_WORLD);
    };
  };
  const auto ours = [&](std::size_t count, int calls) {
    const DeviceSpan<double> part = buffer.span().subspan(0, count);
    return [&all, &stream, part, calls] {
      for (int i = 0; i < calls; ++i) all.all_reduce(stream, part, Reduce::max);
      stream.synchronize();
    };
  };
  const bool prints = all.rank() == 0;
  measure({"all_reduce, 8 B, 5000 in a row", 5000, raw(1, 5000), ours(1, 5000)}, prints);
  measure({"all_reduce, 8 B, each waited for", 500, raw(1, 500),
           [&, one = ours(1, 1)] {
             for (int i = 0; i < 500; ++i) one();
           }},
          prints);
  measure({"all_reduce, 64 KiB, 200 in a row", 200, raw(8192, 200), ours(8192, 200)}, prints);
  measure({"all_reduce, 1 MiB, 50 in a row", 50, raw(131072, 50), ours(131072, 50)}, prints);
  measure({"all_reduce, 16 MiB, 5 in a row", 5, raw(most / 4, 5), ours(most / 4, 5)}, prints);
  measure({"all_reduce, 64 MiB, 2 in a row", 2, raw(most, 2), ours(most, 2)}, prints);
  // Values of a device have to pass its link, in both directions at once.
  const PinnedBuffer<double> sent{most};
  const Stream other;
  std::vector<double> copied;
  for (int turn = 0; turn < turns; ++turn)
    copied.push_back(microseconds([&] {
      copy(stream, values, buffer);
      copy(other, spare, sent);
      stream.synchronize();
      other.synchronize();
    }));
  if (prints)
    std::printf("%-40s runnel %.2f us\n", "64 MiB, copied to the host and back", median(copied));

  // Behind work that has not ended, the call only enqueues. A device's queue holds some 1,000
  // operations, and a call makes several.
  constexpr int enqueued = 100;
  std::vector<double> held;
  for (int turn = 0; turn < turns; ++turn) {
    std::atomic<bool> open{false};
    stream.launch_host_func([&open] { open.wait(false); });
    held.push_back(microseconds([&] {
                     for (int i = 0; i < enqueued; ++i)
                       all.all_reduce(stream, buffer.span().subspan(0, 1), Reduce::max);
                   }) /
                   enqueued);
    open = true;
    open.notify_all();
    stream.synchronize();
  }
  if (prints)
    std::printf("%-40s runnel %.2f us\n", "all_reduce, 8 B, the call behind a gate", median(held));
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  measure_all();
  MPI_Finalize();
}
