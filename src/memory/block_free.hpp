// SPDX-License-Identifier: Apache-2.0
/// Frees a block of device memory after the work of all streams that use it.
///
/// * If a stream can be made to wait for all of them, the free is enqueued: on the block's stream
/// if it is the only user, otherwise on one of the library's own streams, so that the block's
/// stream is not delayed.
/// * Otherwise, if waiting for the device is not allowed or not sufficient, the free is deferred:
/// see deferred_frees.hpp.
/// * Otherwise a thread of the library waits for the devices and then frees the block.
/// * Memory that a capture uses is leaked: waiting for the device would break the capture, and the
/// graph may run later.
#pragma once

#include "stream/stream_point.hpp"

#include <runnel/memory.hpp>

#include <cstddef>
#include <list>

namespace runnel::inline RUNNEL_ABI::detail {

/// The part of a block's state that few blocks need.
struct BlockExtras {
  std::list<StreamPoint> others{};  // The streams that use the block besides its owner.
  SharedResource resource{};        // Null: the device's own memory.
};

/// A block to be freed: immediately, postponed by a host function, or deferred. Moving it allocates
/// nothing.
struct BlockFree {
  void* pointer = nullptr;
  int device = 0;
  std::size_t bytes = 0;
  SharedResource resource{};  // Null: the device's own memory.
  StreamPoint owner{};        // The stream in whose order the block is freed.
  std::list<StreamPoint> others{};
};

/// Whether the stream is being captured. Returns false if it has ended, or if this thread cannot
/// reach it. Requires: the stream's device is current if its handle needs that.
[[nodiscard]] bool is_captured(const HandleLock& stream) noexcept;
/// Frees the block, and drops its points or moves them into a deferred free. Allocates nothing
/// unless the free is deferred.
void free_block(BlockFree& block) noexcept;
/// Postpones the free until the runtime may be called, for use in a host function. Leaks the block
/// if there is no memory for that.
void free_block_later(BlockFree& block) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
