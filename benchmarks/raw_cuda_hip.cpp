// SPDX-License-Identifier: Apache-2.0
/// The lower bound on CUDA and HIP: the same operations as plain runtime calls, with events that
/// are reused.
#include "batches.hpp"
#include "must.hpp"
#include "raw_runtime.hpp"

namespace {

using bench::must;
using bench::repeated;
using bench::repeated_singly;
using bench::timed_batches;
namespace raw = bench::raw;
namespace rt = runnel::rt;

struct RawStream {
  RawStream() { must(rt::stream_create(&handle, rt::stream_non_blocking, 0)); }
  ~RawStream() { must(rt::stream_destroy(handle)); }
  runnel::native::stream handle{};
};
struct RawEvent {
  RawEvent() { must(rt::event_create(&handle, rt::event_flags(false, false, false))); }
  ~RawEvent() { must(rt::event_destroy(handle)); }
  runnel::native::event handle{};
};

void wait_stream(benchmark::State& state) {
  const RawStream a, b;
  const RawEvent event;
  timed_batches(
      state, 500,
      [&] {
        must(raw::event_record(event.handle, a.handle));
        must(raw::stream_wait_event(b.handle, event.handle, 0));
      },
      [&] { must(raw::stream_synchronize(b.handle)); });
}
BENCHMARK(wait_stream)->Name("wait_stream/raw")->Apply(repeated);
BENCHMARK(wait_stream)->Name("record + wait/raw")->Apply(repeated);

void record(benchmark::State& state) {
  const RawStream a;
  const RawEvent event;
  timed_batches(
      state, 500, [&] { must(raw::event_record(event.handle, a.handle)); },
      [&] { must(raw::stream_synchronize(a.handle)); });
}
BENCHMARK(record)->Name("record/raw")->Apply(repeated);

void record_and_wait_busy(benchmark::State& state) {
  const RawStream a, b;
  const RawEvent event;
  timed_batches(
      state, 500,
      [&] {
        must(raw::launch_host_func(a.handle, [](void*) {}, nullptr));
        must(raw::event_record(event.handle, a.handle));
        must(raw::stream_wait_event(b.handle, event.handle, 0));
      },
      [&] { must(raw::stream_synchronize(b.handle)); });
}
BENCHMARK(record_and_wait_busy)->Name("host function + record + wait/raw")->Apply(repeated);

void query(benchmark::State& state) {
  const RawStream a;
  timed_batches(state, 500, [&] { must(raw::stream_query(a.handle)); }, [] {});
}
BENCHMARK(query)->Name("query, idle/raw")->Apply(repeated);

void create_and_destroy(benchmark::State& state) {
  timed_batches(state, 100, [] { const RawStream stream; }, [] {});
}
BENCHMARK(create_and_destroy)->Name("stream create + destroy/raw")->Apply(repeated);

void host_function(benchmark::State& state) {
  const RawStream a;
  timed_batches(
      state, 500, [&] { must(raw::launch_host_func(a.handle, [](void*) {}, nullptr)); },
      [&] { must(raw::stream_synchronize(a.handle)); });
}
BENCHMARK(host_function)->Name("host function, enqueue/raw")->Apply(repeated);

void round_trip(benchmark::State& state) {
  const RawStream a;
  for (auto _ : state) {
    must(raw::launch_host_func(a.handle, [](void*) {}, nullptr));
    must(raw::stream_synchronize(a.handle));
  }
}
BENCHMARK(round_trip)->Name("host function, round trip/raw")->Apply(repeated_singly);

void device_memory(benchmark::State& state) {
  const RawStream a;
  timed_batches(
      state, 100,
      [&] {
        void* pointer = nullptr;
        must(raw::malloc_async(&pointer, std::size_t{1} << 20, a.handle));
        must(raw::free_async(pointer, a.handle));
      },
      [&] { must(raw::stream_synchronize(a.handle)); });
}
BENCHMARK(device_memory)->Name("device memory 1 MiB, allocate + free/raw")->Apply(repeated);

void* pinned(std::size_t bytes) {
  void* pointer = nullptr;
  must(rt::malloc_host(&pointer, bytes, rt::malloc_host_flags));
  return pointer;
}

void pinned_memory(benchmark::State& state) {
  timed_batches(state, 4, [&] { must(rt::free_host(pinned(std::size_t{1} << 20))); }, [] {});
}
BENCHMARK(pinned_memory)->Name("pinned memory 1 MiB, allocate + free/raw")->Apply(repeated);

void many_copies(benchmark::State& state) {
  constexpr std::size_t piece = std::size_t{64} << 10;
  constexpr std::size_t count = 256;
  const RawStream a;
  void* there = nullptr;
  must(rt::malloc_device(&there, piece * count));
  void* const here = pinned(piece * count);
  timed_batches(
      state, 4,
      [&] {
        for (std::size_t i = 0; i < count; ++i)
          must(raw::copy_async(static_cast<char*>(there) + i * piece,
                               static_cast<char*>(here) + i * piece, piece, a.handle));
      },
      [&] { must(raw::stream_synchronize(a.handle)); });
  must(rt::free_host(here));
  must(rt::free_device(there));
}
BENCHMARK(many_copies)->Name("256 copies of 64 KiB, enqueue/raw")->Apply(repeated);

constexpr int graph_size = 20;

struct RawMemory {
  explicit RawMemory(std::size_t bytes) { must(rt::malloc_device(&pointer, bytes)); }
  ~RawMemory() { must(rt::free_device(pointer)); }
  void* pointer = nullptr;
};

void fill_twenty_times(const RawStream& stream, const RawMemory& memory) {
  for (int i = 0; i < graph_size; ++i)
    must(raw::fill_async(memory.pointer, 'x', 1024, stream.handle));
}

void twenty_fills(benchmark::State& state) {
  const RawStream a;
  const RawMemory memory(1024);
  timed_batches(
      state, 20, [&] { fill_twenty_times(a, memory); },
      [&] { must(raw::stream_synchronize(a.handle)); });
}
BENCHMARK(twenty_fills)->Name("20 fills of 1 KiB, enqueue/raw")->Apply(repeated);

void graph_launch(benchmark::State& state) {
  const RawStream a;
  const RawMemory memory(1024);
  runnel::native::graph graph{};
  runnel::native::executable_graph executable{};
  must(rt::stream_begin_capture(a.handle, rt::capture_mode_relaxed));
  fill_twenty_times(a, memory);
  must(rt::stream_end_capture(a.handle, &graph));
  must(rt::graph_instantiate(&executable, graph, 0));
  timed_batches(
      state, 100, [&] { must(rt::graph_launch(executable, a.handle)); },
      [&] { must(raw::stream_synchronize(a.handle)); });
  must(rt::executable_graph_destroy(executable));
  must(rt::graph_destroy(graph));
}
BENCHMARK(graph_launch)->Name("graph of 20 fills, launch/raw")->Apply(repeated);

}  // namespace
