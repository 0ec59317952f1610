// SPDX-License-Identifier: Apache-2.0
/// A block of device memory that its owner has given up, and how it is freed behind the work of all
/// streams that use it.
///
/// * If the streams can be waited for, the free is enqueued behind them: on the block's stream if
///   there are no others, else on one of the library's own, so that the block's stream goes on at
///   once.
/// * Else it becomes an entry of deferred_frees.hpp, with its points, if waiting for the device is
///   not allowed or not enough.
/// * Else a thread of the library waits for the devices first.
/// * Memory that a capture uses is leaked: to wait for the device would break the capture, and the
///   graph may still run later.
#pragma once

#include "stream/stream_point.hpp"

#include <runnel/memory.hpp>

#include <cstddef>
#include <list>

namespace runnel::inline RUNNEL_ABI::detail {

/// What few blocks have while they are in use.
struct BlockExtras {
  std::list<StreamPoint> others{};  // streams that use the block besides its owner
  SharedResource resource{};        // null: the device's own memory
};

/// One form for a free at the call, one that a host function has postponed, and one that is
/// deferred: moving it allocates nothing.
struct BlockFree {
  void* pointer = nullptr;
  int device = 0;
  std::size_t bytes = 0;
  SharedResource resource{};  // null: the device's own memory
  StreamPoint own{};          // the stream in whose order the block is freed
  std::list<StreamPoint> others{};
};

/// Frees the block, and drops or keeps its points. Allocates nothing unless the free has to be
/// deferred.
void free_block(BlockFree& block) noexcept;
/// Frees it once the runtime may be called: for a host function. Leaks it if there is no memory to
/// postpone that.
void free_block_later(BlockFree& block) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
