// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_observing
/// Counts of the runtime objects that the library holds, for tests and for finding leaks.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Counts of live objects.
struct LiveObjects {
  std::size_t streams;        ///< streams that a `Stream` or a pool owns or wraps
  std::size_t events;         ///< events that an `Event` or `TimedEvent` owns
  std::size_t pooled_events;  ///< native events kept for reuse by events and `wait_stream`, or
                              ///< behind work that memory waits for; at most as many as were in
                              ///< use at one time
  std::size_t
      pinned_blocks;  ///< allocated blocks of the pinned pool; cached blocks are not counted
  std::size_t
      device_blocks;  ///< blocks of a `DeviceBuffer`, a `ManagedBuffer` or a `DeviceResource`
  std::size_t host_functions;  ///< host functions that are enqueued, or owned by a graph, and not
                               ///< yet destroyed
  std::size_t graphs;          ///< graphs that a `Graph` owns
  friend constexpr bool operator==(const LiveObjects&, const LiveObjects&) noexcept = default;
};

/// Returns the counts at this moment. Makes no runtime call.
[[nodiscard]] LiveObjects live_objects() noexcept;

}  // namespace runnel::inline RUNNEL_ABI
