// SPDX-License-Identifier: Apache-2.0
/// What operations.cpp is compared with on the host backend.
#include "batches.hpp"
#include "plain_queue.hpp"

#include <memory>

namespace {

using bench::PlainEvent;
using bench::PlainQueue;
using bench::repeated;
using bench::repeated_singly;
using bench::timed_batches;

void host_function(benchmark::State& state) {
  PlainQueue a;
  timed_batches(state, bench::enqueued_batch, [&] { a.enqueue([] {}); }, [&] { a.drain(); });
}
BENCHMARK(host_function)->Name("host function, enqueue/raw")->Apply(repeated);

void round_trip(benchmark::State& state) {
  PlainQueue a;
  for (auto _ : state) a.drain();
}
BENCHMARK(round_trip)->Name("host function, round trip/raw")->Apply(repeated_singly);

void record_and_wait(benchmark::State& state) {
  PlainQueue a, b;
  timed_batches(
      state, bench::enqueued_batch,
      [&] {
        const auto event = std::make_shared<PlainEvent>();
        a.enqueue([event] { event->set(); });
        b.enqueue([event] { event->wait(); });
      },
      [&] { b.drain(); });
}
BENCHMARK(record_and_wait)->Name("record + wait/raw")->Apply(repeated);

void record_and_wait_busy(benchmark::State& state) {
  PlainQueue a, b;
  timed_batches(
      state, bench::enqueued_batch,
      [&] {
        const auto event = std::make_shared<PlainEvent>();
        a.enqueue([] {});
        a.enqueue([event] { event->set(); });
        b.enqueue([event] { event->wait(); });
      },
      [&] { b.drain(); });
}
BENCHMARK(record_and_wait_busy)->Name("host function + record + wait/raw")->Apply(repeated);

void create_and_destroy(benchmark::State& state) {
  timed_batches(state, 100, [] { const PlainQueue queue; }, [] {});
}
BENCHMARK(create_and_destroy)->Name("stream create + destroy/raw")->Apply(repeated);

}  // namespace
