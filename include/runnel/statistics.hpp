// SPDX-License-Identifier: Apache-2.0
/// How many objects of the runtime are alive: for tests, and for finding leaks.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Counts of objects.
struct LiveObjects {
  std::size_t streams;         ///< owned by a `Stream` or a pool, or wrapped
  std::size_t events;          ///< owned by an `Event` or `TimedEvent`
  std::size_t pooled_events;   ///< kept warm for events and `wait_stream` to come; bounded by the events in use at one time
  std::size_t pinned_blocks;   ///< owned by users of the pinned pool; cached ones are not counted
  std::size_t device_blocks;   ///< owned by a `DeviceBuffer`, a `ManagedBuffer`, or allocated from a `DeviceResource`
  std::size_t host_functions;  ///< enqueued and not yet destroyed
  friend constexpr bool operator==(const LiveObjects&, const LiveObjects&) noexcept = default;
};

/// Counts at this moment; makes no runtime call.
[[nodiscard]] LiveObjects live_objects() noexcept;

}  // namespace runnel::inline RUNNEL_ABI
