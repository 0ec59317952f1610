// SPDX-License-Identifier: Apache-2.0
/// The counts behind `live_objects()`.
#pragma once

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
  sync::Atomic<std::size_t> device_blocks{0};
  sync::Atomic<std::size_t> graphs{0};
  // On two cache lines: the threads that enqueue functions write one number, the threads that run them write the other.
  alignas(64) sync::Atomic<std::size_t> host_functions_made{0};
  alignas(64) sync::Atomic<std::size_t> host_functions_destroyed{0};
};
extern constinit Counters counters;

inline void count_up(sync::Atomic<std::size_t>& counter) noexcept { counter.fetch_add(1, std::memory_order_relaxed); }
[[nodiscard]] inline std::size_t read_count(const sync::Atomic<std::size_t>& counter) noexcept {
  return counter.load(std::memory_order_relaxed);
}
inline void count_down(sync::Atomic<std::size_t>& counter) noexcept { counter.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace runnel::inline RUNNEL_ABI::detail
