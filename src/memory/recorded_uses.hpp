// SPDX-License-Identifier: Apache-2.0
/// Uses of device memory that any thread has recorded by an address, instead of through the buffer
/// that owns the block. Allocations are not tracked here, so a program that records no such use has
/// no cost.
#pragma once

#include "base/sync.hpp"
#include "slot/point.hpp"
#include "slot/slots.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/stream.hpp>

#include <atomic>
#include <cstddef>
#include <list>

namespace runnel::inline RUNNEL_ABI::detail {

// Changed under the lock of the uses.
inline constinit sync::Atomic<size_t> blocks_with_uses{0};

/// Adds an open point of the stream to the block that contains the address. @throws
/// errc::invalid_handle if the stream was destroyed
void add_recorded_use(const void* pointer, StreamRef stream);
/// The points of a block.
[[nodiscard]] std::list<Point> recorded_uses(const void* block, size_t bytes);
/// Removes the points of a block that is about to be freed, and returns them except those of its
/// own stream. Allocates nothing.
[[nodiscard]] std::list<Point> take_recorded_uses_slowly(const void* block, size_t bytes,
                                                         StreamKey own) noexcept;
[[nodiscard]] inline std::list<Point> take_recorded_uses(const void* block, size_t bytes,
                                                         StreamKey own) noexcept {
  return blocks_with_uses.load(std::memory_order_relaxed) == 0
             ? std::list<Point>{}
             : take_recorded_uses_slowly(block, bytes, own);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
