// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// The pool of pinned host memory from which `PinnedBuffer`, `pinned_resource()` and
/// `PinnedAllocator` take their blocks.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// The contents of the pinned pool. Sizes are in bytes, rounded up to whole blocks.
struct PinnedStatistics {
  std::size_t in_use;  ///< bytes in blocks that are allocated, by users and by the library's own
                       ///< short copies
  std::size_t peak;  ///< the maximum of `in_use`, since the start or since PinnedPool::reset_peak()
  std::size_t cached;         ///< bytes kept for reuse; streams may still be using some of them
  std::size_t blocks;         ///< blocks that are allocated
  std::size_t cached_blocks;  ///< blocks kept for reuse
  std::size_t hits;           ///< allocations served from the cache
  std::size_t misses;         ///< allocations that called the runtime
  std::size_t releasing;  ///< bytes that are being returned to the runtime; they count against the
                          ///< limit until they are freed
};

/// The process's pool of pinned memory. Pinning memory takes several times as long as copying it,
/// so the pool keeps freed blocks for reuse. Block sizes are powers of two from 4 KiB to 1 MiB, and
/// four in each doubling up to 1 GiB; larger blocks are returned to the runtime. The pool reuses a
/// block only when every stream that used the block has completed that work. Returning memory to
/// the runtime waits for all work of all devices, so a thread of the library does it; a call waits
/// for that thread only as long as its documentation says. Uses by kernels and host functions are
/// recorded by record_stream() (memory.hpp). All members throw errc::forked in a forked child,
/// set_limit() and trim() errc::not_permitted in a host function.
class PinnedPool {
 public:
  PinnedPool() = delete;  ///< there is one pool; its functions are static

  /// The contents of the pool at this moment. Makes no runtime call.
  [[nodiscard]] static PinnedStatistics statistics();

  /// Sets `peak` to the bytes in use at this moment.
  static void reset_peak();

  /// Limits the bytes in the pool: the sum of those in use, cached and being returned to the
  /// runtime (default: no limit). To stay below the limit the pool returns cached blocks to the
  /// runtime, as trim() does. An allocation that does not fit does this too, and waits at most a
  /// second for them; if it still does not fit, it throws errc::out_of_memory. Blocks that are in
  /// use beyond a new limit stay valid; once freed, they are returned to the runtime by the next
  /// allocation or trim().
  static void set_limit(std::size_t bytes);
  /// The limit in bytes; the maximum of std::size_t if none was set.
  [[nodiscard]] static std::size_t limit();

  /// Frees every cached block that no stream is using; for the blocks of staged copies see
  /// Staging::trim(). A thread of the library returns the memory to the runtime. The call waits at
  /// most 0.1 s for that, which is long enough if the devices are idle; until the memory is freed,
  /// statistics() counts the bytes as `releasing`.
  static void trim();
};

}  // namespace runnel::inline RUNNEL_ABI
