// SPDX-License-Identifier: Apache-2.0
#include <runnel/statistics.hpp>

#include "base/counters.hpp"
#include "base/thread_end.hpp"

#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {

constinit Counters counters{};
thread_local constinit FunctionCounts* own_counts = nullptr;

namespace {

constinit FunctionCounts shared_counts{};  // for threads that have no memory for their own
constinit sync::Atomic<FunctionCounts*> all_counts{&shared_counts};

/// Counts that no thread uses, or new ones; null without memory.
[[nodiscard]] FunctionCounts* take_counts() noexcept {
  for (FunctionCounts* each = all_counts.load(std::memory_order_acquire); each != nullptr;
       each = each->next)
    if (!each->is_used.load(std::memory_order_relaxed) &&
        !each->is_used.exchange(true, std::memory_order_acquire))
      return each;
  auto* const fresh = new (std::nothrow) FunctionCounts;
  if (fresh == nullptr) return nullptr;
  fresh->next = all_counts.load(std::memory_order_relaxed);
  while (!all_counts.compare_exchange_weak(fresh->next, fresh, std::memory_order_release,
                                           std::memory_order_relaxed)) {
  }
  return fresh;
}

void return_counts(void*) noexcept {
  std::exchange(own_counts, nullptr)->is_used.store(false, std::memory_order_release);
}

[[nodiscard]] std::size_t sum_of(sync::Atomic<std::size_t> FunctionCounts::* which) noexcept {
  std::size_t sum = 0;
  for (const FunctionCounts* each = all_counts.load(std::memory_order_acquire); each != nullptr;
       each = each->next)
    sum += (each->*which).load(std::memory_order_acquire);
  return sum;
}

}  // namespace

void count_slowly(sync::Atomic<std::size_t> FunctionCounts::* which) noexcept {
  own_counts = take_counts();
  if (own_counts == nullptr) {
    (shared_counts.*which).fetch_add(1, std::memory_order_release);
    return;
  }
  // A thread that counts while it ends takes counts again.
  at_thread_end(return_counts, nullptr);
  count_function(which);
}

bool are_functions_under_way() noexcept {
  // Read first: a function that is made meanwhile only makes the result true.
  const std::size_t destroyed = sum_of(&FunctionCounts::destroyed);
  const std::size_t made = sum_of(&FunctionCounts::made);
  // Read last: a function that has ended since may have launched a graph.
  if (made != destroyed || counters.graph_runs.load(std::memory_order_acquire) != 0) return true;
  sync::happens_after(&counters);
  return false;
}

}  // namespace detail

LiveObjects live_objects() noexcept {
  using detail::read_count, detail::sum_of;
  const detail::Counters& now = detail::counters;
  // Read first, so that it is not larger than `made`.
  const std::size_t destroyed = sum_of(&detail::FunctionCounts::destroyed);
  const std::size_t made = sum_of(&detail::FunctionCounts::made) + read_count(now.graph_functions);
  std::size_t blocks = read_count(now.shared_and_managed_blocks);
  for (const auto& of_device : now.device_blocks) blocks += read_count(of_device);
  return {.streams = read_count(now.streams),
          .events = read_count(now.events),
          .pooled_events = read_count(now.pooled_events),
          .pinned_blocks = read_count(now.pinned_blocks),
          .device_blocks = blocks,
          .host_functions = made - destroyed,
          .graphs = read_count(now.graphs)};
}

}  // namespace runnel::inline RUNNEL_ABI
