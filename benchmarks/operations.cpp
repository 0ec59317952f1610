// SPDX-License-Identifier: Apache-2.0
/// What runnel's operations cost the calling thread. Each has a raw counterpart with the same name
/// in raw_*.cpp.
#include "batches.hpp"

#include <runnel/runnel.hpp>

#include <span>
#include <vector>

namespace {

using namespace runnel;
using bench::repeated;
using bench::repeated_singly;
using bench::timed_batches;

constexpr int batch = 500;

void wait_stream(benchmark::State& state) {
  const Stream a, b;
  timed_batches(state, batch, [&] { b.wait_stream(a); }, [&] { b.synchronize(); });
}
BENCHMARK(wait_stream)->Name("wait_stream/runnel")->Apply(repeated);

void record(benchmark::State& state) {
  const Stream a;
  Event event;
  timed_batches(state, batch, [&] { a.record_event(event); }, [&] { a.synchronize(); });
}
BENCHMARK(record)->Name("record/runnel")->Apply(repeated);

void record_and_wait(benchmark::State& state) {
  const Stream a, b;
  Event event;
  timed_batches(
      state, bench::enqueued_batch,
      [&] {
        a.record_event(event);
        b.wait_event(event);
      },
      [&] { b.synchronize(); });
}
BENCHMARK(record_and_wait)->Name("record + wait/runnel")->Apply(repeated);

/// The same while the first stream has pending work, so that the second stream really waits.
void record_and_wait_busy(benchmark::State& state) {
  const Stream a, b;
  Event event;
  timed_batches(
      state, bench::enqueued_batch,
      [&] {
        a.launch_host_func([] {});
        a.record_event(event);
        b.wait_event(event);
      },
      [&] { b.synchronize(); });
}
BENCHMARK(record_and_wait_busy)->Name("host function + record + wait/runnel")->Apply(repeated);

void query(benchmark::State& state) {
  const Stream a;
  timed_batches(state, batch, [&] { benchmark::DoNotOptimize(a.query()); }, [] {});
}
BENCHMARK(query)->Name("query, idle/runnel")->Apply(repeated);

void create_and_destroy(benchmark::State& state) {
  timed_batches(state, 100, [] { const Stream stream; }, [] {});
}
BENCHMARK(create_and_destroy)->Name("stream create + destroy/runnel")->Apply(repeated);

void host_function(benchmark::State& state) {
  const Stream a;
  timed_batches(state, batch, [&] { a.launch_host_func([] {}); }, [&] { a.synchronize(); });
}
BENCHMARK(host_function)->Name("host function, enqueue/runnel")->Apply(repeated);

void round_trip(benchmark::State& state) {
  const Stream a;
  for (auto _ : state) {
    a.launch_host_func([] {});
    a.synchronize();
  }
}
BENCHMARK(round_trip)->Name("host function, round trip/runnel")->Apply(repeated_singly);

void device_memory(benchmark::State& state) {
  const Stream a;
  timed_batches(
      state, 100, [&] { const DeviceBuffer<char> buffer(std::size_t{1} << 20, a); },
      [&] { a.synchronize(); });
}
BENCHMARK(device_memory)->Name("device memory 1 MiB, allocate + free/runnel")->Apply(repeated);

void pinned_memory(benchmark::State& state) {
  timed_batches(
      state, 10000,
      [] {
        PinnedBuffer<char> buffer(std::size_t{1} << 20);
        benchmark::DoNotOptimize(buffer.data());
      },
      [] {});
}
BENCHMARK(pinned_memory)->Name("pinned memory 1 MiB, allocate + free/runnel")->Apply(repeated);

/// Small copies to a device with one call.
void many_copies(benchmark::State& state) {
  constexpr std::size_t piece = std::size_t{64} << 10;
  constexpr std::size_t count = 256;
  const Stream a;
  DeviceBuffer<char> there(piece * count, a);
  PinnedBuffer<char> here(piece * count);
  std::vector<CopyOperation> copies;
  for (std::size_t i = 0; i < count; ++i)
    copies.push_back(copy_operation(there.span().subspan(i * piece, piece),
                                    std::span{here.data() + i * piece, piece}));
  for (CopyOperation& copy : copies) copy.from_kind = MemoryKind::pinned;
  timed_batches(state, 4, [&] { copy_batch(a, copies); }, [&] { a.synchronize(); });
}
BENCHMARK(many_copies)->Name("256 copies of 64 KiB, enqueue/runnel")->Apply(repeated);

constexpr int graph_size = 20;

void fill_twenty_times(const Stream& stream, DeviceBuffer<char>& memory) {
  for (int i = 0; i < graph_size; ++i) fill(stream, memory, 'x');
}

void twenty_fills(benchmark::State& state) {
  const Stream a;
  DeviceBuffer<char> memory(1024, a);
  timed_batches(state, 20, [&] { fill_twenty_times(a, memory); }, [&] { a.synchronize(); });
}
BENCHMARK(twenty_fills)->Name("20 fills of 1 KiB, enqueue/runnel")->Apply(repeated);

void graph_launch(benchmark::State& state) {
  const Stream a;
  DeviceBuffer<char> memory(1024, a);
  const Graph graph = capture(a, [&] { fill_twenty_times(a, memory); });
  timed_batches(state, 100, [&] { graph.launch(a); }, [&] { a.synchronize(); });
}
BENCHMARK(graph_launch)->Name("graph of 20 fills, launch/runnel")->Apply(repeated);

void current_stream_read(benchmark::State& state) {
  const Stream a;
  const StreamGuard with{a};
  timed_batches(state, 10000, [] { benchmark::DoNotOptimize(current_stream()); }, [] {});
}
BENCHMARK(current_stream_read)->Name("current stream, read/runnel")->Apply(repeated);

void guard(benchmark::State& state) {
  const Stream a;
  timed_batches(state, 10000, [&] { const StreamGuard with{a}; }, [] {});
}
BENCHMARK(guard)->Name("guard enter + leave, same device/runnel")->Apply(repeated);

void lease(benchmark::State& state) {
  StreamPool pool{Device::current()};
  timed_batches(state, 10000, [&] { const StreamLease lease = pool.acquire(); }, [] {});
}
BENCHMARK(lease)->Name("pool lease + return/runnel")->Apply(repeated);

}  // namespace
