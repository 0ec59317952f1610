// SPDX-License-Identifier: Apache-2.0
#include <runnel/statistics.hpp>

#include "base/counters.hpp"
#include "base/polling.hpp"
#include "base/push_front.hpp"
#include "base/thread_end.hpp"

#include <chrono>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {

constinit Counters counters{};
thread_local constinit ThreadCounts* own_counts = nullptr;

namespace {

constinit ThreadCounts shared_counts{};  // for threads that have no memory for their own
constinit sync::Atomic<ThreadCounts*> all_counts{&shared_counts};

/// Counts that no thread uses, or new ones; null without memory.
[[nodiscard]] ThreadCounts* take_counts() noexcept {
  for (ThreadCounts* each = all_counts; each != nullptr; each = each->next)
    if (!each->is_used && !each->is_used.exchange(true)) return each;
  auto* const fresh = new (std::nothrow) ThreadCounts;
  if (fresh == nullptr) return nullptr;
  push_front(all_counts, *fresh, fresh->next);
  return fresh;
}

void return_counts(void*) noexcept { std::exchange(own_counts, nullptr)->is_used = false; }

size_t sum_of(Count which) noexcept {
  size_t sum = 0;
  for (ThreadCounts* each = all_counts; each != nullptr; each = each->next)
    sum += (*each)[which].load(std::memory_order_seq_cst);
  return sum;
}

/// Whether functions that were counted as `made` have not ended.
bool are_under_way(Count made, Count ended) noexcept {
  // Read first: a function that is made meanwhile only makes the result true.
  const size_t ended_so_far = sum_of(ended);
  return sum_of(made) != ended_so_far;
}

}  // namespace

ThreadCounts& counts_slowly() noexcept {
  own_counts = take_counts();
  if (own_counts == nullptr) return shared_counts;
  // A thread that counts while it ends takes counts again.
  at_thread_end(return_counts, nullptr);
  return *own_counts;
}

bool are_host_functions_under_way() noexcept {
  // Read last: a function that has ended since may have launched a graph.
  if (are_under_way(Count::made_functions, Count::ended_functions) || counters.graph_runs != 0)
    return true;
  sync::happens_after(&counters);
  return false;
}

bool are_functions_under_way() noexcept {
  // Each kind may leave the other behind: a completion function enqueues a host function, which
  // drops a graph.
  const auto are_completions_under_way = [] {
    return are_under_way(Count::made_completions, Count::ended_completions);
  };
  return are_completions_under_way() || are_host_functions_under_way() ||
         are_completions_under_way();
}

constinit sync::Atomic<bool> is_memory_untouchable{false};

void end_user_accesses() noexcept {
  is_memory_untouchable.store(true, std::memory_order_seq_cst);
  try_for(std::chrono::seconds{10}, [] { return sum_of(Count::accesses) == 0; });
}

}  // namespace detail

LiveObjects live_objects() noexcept {
  using detail::Count, detail::read_count, detail::sum_of;
  const detail::Counters& now = detail::counters;
  // Read first, so that it is not larger than `made`.
  const size_t ended = sum_of(Count::ended_functions) + sum_of(Count::ended_completions);
  const size_t made = sum_of(Count::made_functions) + sum_of(Count::made_completions) +
                      read_count(now.graph_functions);
  size_t blocks = read_count(now.shared_and_managed_blocks);
  for (const auto& of_device : now.device_blocks) blocks += read_count(of_device);
  return {.streams = read_count(now.streams),
          .events = read_count(now.events),
          .pooled_events = read_count(now.pooled_events),
          .pinned_blocks = read_count(now.pinned_blocks),
          .device_blocks = blocks,
          .host_functions = made - ended,
          .graphs = read_count(now.graphs)};
}

}  // namespace runnel::inline RUNNEL_ABI
