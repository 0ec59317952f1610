// SPDX-License-Identifier: Apache-2.0
/// The pool beneath `PinnedBuffer`, `pinned_resource()` and `PinnedAllocator`. Pinning costs as much as copying the memory some times over,
/// so blocks are kept: in sizes of powers of two from 4 KiB to 1 GiB; larger ones go back to the runtime. A block is handed out again only
/// when every stream that used it has passed.
#pragma once

#include <runnel/stream.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Work submitted to the stream so far uses the pinned block that this pointer points into. runnel's own copies and fills say so
/// themselves. @throws errc::invalid_argument for a pointer that is in no block of the pool in use
void record_use(const void* pointer, StreamRef stream);

/// Sizes in bytes, as rounded up.
struct PinnedStatistics {
  std::size_t in_use;         ///< in blocks that users own
  std::size_t peak;           ///< the most that `in_use` was
  std::size_t cached;         ///< kept for reuse, those included that streams may still be using
  std::size_t blocks;         ///< that users own
  std::size_t cached_blocks;  ///< kept for reuse
  std::size_t hits;           ///< allocations served from the cache
  std::size_t misses;         ///< allocations that asked the runtime
};
/// Counts at this moment; makes no runtime call. @throws errc::forked in a forked child, as all functions of the pool do
[[nodiscard]] PinnedStatistics pinned_statistics();

/// The pool never holds more bytes than this, used and cached together; no limit at first. Cached blocks are given back to make room;
/// what does not fit then is `errc::out_of_memory`. Blocks in use beyond a new limit stay.
void set_pinned_limit(std::size_t bytes);
/// What set_pinned_limit() was given last; the maximum of size_t at first.
[[nodiscard]] std::size_t pinned_limit();

/// Gives every cached block that no stream is using any more back to the runtime. May wait for devices, as the runtimes' own frees do.
void trim_pinned();

}  // namespace runnel::inline RUNNEL_ABI
