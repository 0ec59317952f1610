// SPDX-License-Identifier: Apache-2.0
#include <runnel/statistics.hpp>

#include "base/counters.hpp"

namespace runnel::inline RUNNEL_ABI {

namespace detail {
constinit Counters counters{};
}

LiveObjects live_objects() noexcept {
  using detail::read_count;
  const detail::Counters& now = detail::counters;
  const std::size_t destroyed = read_count(now.host_functions_destroyed);  // read first, so that it is not larger than the other
  const std::size_t created = read_count(now.host_functions_made);
  return {.streams = read_count(now.streams),
          .events = read_count(now.events),
          .pooled_events = read_count(now.pooled_events),
          .pinned_blocks = read_count(now.pinned_blocks),
          .device_blocks = read_count(now.device_blocks),
          .host_functions = created - destroyed,
          .graphs = read_count(now.graphs)};
}

}  // namespace runnel::inline RUNNEL_ABI
