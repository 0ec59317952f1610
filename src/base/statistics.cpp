// SPDX-License-Identifier: Apache-2.0
#include <runnel/statistics.hpp>

#include "base/counters.hpp"

namespace runnel::inline RUNNEL_ABI {

namespace detail {
constinit Counters counters{};
}

LiveObjects live_objects() noexcept {
  const auto read = [](const std::atomic<std::size_t>& counter) { return counter.load(std::memory_order_relaxed); };
  const detail::Counters& now = detail::counters;
  const std::size_t destroyed = read(now.host_functions_destroyed);  // read first, so that it is not larger than the other
  const std::size_t made = read(now.host_functions_made);
  return {.streams = read(now.streams),
          .events = read(now.events),
          .pooled_events = read(now.pooled_events),
          .pinned_blocks = read(now.pinned_blocks),
          .device_blocks = read(now.device_blocks),
          .host_functions = made - destroyed};
}

}  // namespace runnel::inline RUNNEL_ABI
