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
  sync::Atomic<std::size_t> graph_functions{0};  // functions that graphs own
  sync::Atomic<std::size_t> graph_runs{0};  // runs of such functions that are pending or running
};
extern constinit Counters counters;

inline void count_up(sync::Atomic<std::size_t>& counter) noexcept {
  counter.fetch_add(1, std::memory_order_relaxed);
}
[[nodiscard]] inline std::size_t read_count(const sync::Atomic<std::size_t>& counter) noexcept {
  return counter.load(std::memory_order_relaxed);
}
/// Host functions that are enqueued or running, without those of graphs. Each thread has its own
/// counts, because shared ones would make an enqueue a fifth slower. The counts of a thread that
/// ended are reused by the next thread, and are never freed.
struct alignas(64) FunctionCounts {
  sync::Atomic<std::size_t> made{0};
  sync::Atomic<std::size_t> destroyed{0};
  sync::Atomic<bool> is_used{true};  // by a thread
  FunctionCounts* next = nullptr;
};
// Null before the thread's first count, and after its end.
extern thread_local constinit FunctionCounts* own_counts;

/// For a thread without counts: acquires some, or uses the shared ones if there is no memory.
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

/// In this scope, a call of user code counts as a running function.
class CountedCall {
 public:
  CountedCall() noexcept { count_made_function(); }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;
  ~CountedCall() { count_destroyed_function(); }
};
/// Whether any function that was submitted before the call is still enqueued or running, or a
/// graph's function is still pending.
[[nodiscard]] bool are_functions_under_way() noexcept;

inline void count_down(sync::Atomic<std::size_t>& counter) noexcept {
  counter.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
