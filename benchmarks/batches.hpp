// SPDX-License-Identifier: Apache-2.0
/// Timing of operations that only enqueue. A batch is timed and then drained without timing, so
/// that a full queue is not measured.
#pragma once

#include <benchmark/benchmark.h>
#include <runnel/config.hpp>

#include <chrono>

namespace bench {

template <class Operation, class Drain>
void timed_batches(benchmark::State& state, int batch, Operation operation, Drain drain) {
  for (int i = 0; i < batch; ++i) operation();  // warms the caches
  drain();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i) operation();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    drain();
    state.SetIterationTime(taken.count() / batch);
  }
}

/// How many operations a batch enqueues. On a GPU they must fit into its queue. The host backend's
/// queue holds 65,536, so the batch is larger, because otherwise the time to wake the stream's
/// thread, once for each batch, would dominate.
#ifdef RUNNEL_BACKEND_HOST
constexpr int enqueued_batch = 2000;
#else
constexpr int enqueued_batch = 500;
#endif

/// Nine runs of 20 batches, of which the median is reported.
inline void repeated(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Iterations(20)->Repetitions(9);
}
/// For operations that wait, which are timed one by one.
inline void repeated_singly(benchmark::internal::Benchmark* b) {
  b->Iterations(2000)->Repetitions(9);
}

}  // namespace bench
