// SPDX-License-Identifier: Apache-2.0
/// The counts behind `live_objects()`.
#pragma once

#include "base/announce.hpp"
#include "base/max_devices.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

struct Counters {
  sync::Atomic<std::size_t> streams{0};
  sync::Atomic<std::size_t> events{0};
  sync::Atomic<std::size_t> pooled_events{0};
  sync::Atomic<std::size_t> pinned_blocks{0};
  sync::Atomic<std::size_t> device_blocks[max_devices]{};
  sync::Atomic<std::size_t> shared_and_managed_blocks{0};
  sync::Atomic<std::size_t> graphs{0};
  sync::Atomic<std::size_t> graph_functions{0};  // owned by graphs
  sync::Atomic<std::size_t> graph_runs{0};       // of such functions, that are due or under way
};
extern constinit Counters counters;

inline void count_up(sync::Atomic<std::size_t>& counter) noexcept {
  counter.fetch_add(1, std::memory_order_relaxed);
}
[[nodiscard]] inline std::size_t read_count(const sync::Atomic<std::size_t>& counter) noexcept {
  return counter.load(std::memory_order_relaxed);
}
/// Functions that are enqueued or run, without those of graphs, counted by each thread for itself:
/// numbers that all threads write would cost an enqueue a fifth of its time. They go on from one
/// thread to the next, and are never freed.
struct alignas(64) FunctionCounts {
  sync::Atomic<std::size_t> made{0};
  sync::Atomic<std::size_t> destroyed{0};
  sync::Atomic<bool> is_used{true};  // by a thread
  FunctionCounts* next = nullptr;
};
// null until the thread's first count, and once it has ended
extern thread_local constinit FunctionCounts* own_counts;

/// For a thread that has no counts: gets some, or counts where all threads may.
void count_slowly(sync::Atomic<std::size_t> FunctionCounts::* which) noexcept;
inline void count_function(sync::Atomic<std::size_t> FunctionCounts::* which) noexcept {
  if (own_counts == nullptr) [[unlikely]]
    return count_slowly(which);
  sync::Atomic<std::size_t>& count = (*own_counts).*which;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}
inline void count_made_function() noexcept { count_function(&FunctionCounts::made); }
inline void count_destroyed_function() noexcept {
  sync::happens_before(&counters);
  count_function(&FunctionCounts::destroyed);
}

/// While it lives, a call of the user's code counts as a function that runs.
class CountedCall {
 public:
  CountedCall() noexcept { count_made_function(); }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;
  ~CountedCall() { count_destroyed_function(); }
};
/// Whether any function that was submitted before the call is still enqueued, or runs, or is a
/// graph's and due.
[[nodiscard]] bool are_functions_under_way() noexcept;

inline void count_down(sync::Atomic<std::size_t>& counter) noexcept {
  counter.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
