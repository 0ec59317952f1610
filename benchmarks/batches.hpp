// SPDX-License-Identifier: Apache-2.0
/// Timing operations that only enqueue: a batch is timed, then drained outside the clock, so that a full queue is not measured.
#pragma once

#include <benchmark/benchmark.h>
#include <runnel/config.hpp>

#include <chrono>

namespace bench {

template <class Operation, class Drain>
void timed_batches(benchmark::State& state, int batch, Operation operation, Drain drain) {
  for (int i = 0; i < batch; ++i) operation();  // the first calls find cold caches
  drain();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i) operation();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    drain();
    state.SetIterationTime(taken.count() / batch);
  }
}

/// How many host functions and the like are enqueued at a time. On a GPU few enough for its queue; on the host backend, whose queue holds
/// 65,536, so many that waking its thread up, once a batch, is not what is measured.
#ifdef RUNNEL_BACKEND_HOST
constexpr int enqueued_batch = 2000;
#else
constexpr int enqueued_batch = 500;
#endif

/// Medians of nine runs of so many batches.
inline void repeated(benchmark::internal::Benchmark* b) { b->UseManualTime()->Iterations(20)->Repetitions(9); }
/// For operations that wait, and so are timed as they are.
inline void repeated_singly(benchmark::internal::Benchmark* b) { b->Iterations(2000)->Repetitions(9); }

}  // namespace bench
