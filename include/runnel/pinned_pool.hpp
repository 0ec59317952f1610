// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// The pool of pinned host memory from which `PinnedBuffer`, `pinned_resource()` and
/// `PinnedAllocator` take their blocks.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// What the pinned pool holds. Sizes are in bytes, rounded up to whole blocks.
struct PinnedStatistics {
  std::size_t in_use;  ///< bytes in blocks that are handed out, to users and to the library's own
                       ///< short copies
  std::size_t peak;    ///< the most that `in_use` ever was, or was since PinnedPool::reset_peak()
  std::size_t cached;  ///< bytes kept for reuse; streams may still be using some of them
  std::size_t blocks;  ///< blocks that are handed out
  std::size_t cached_blocks;  ///< blocks kept for reuse
  std::size_t hits;           ///< allocations served from the cache
  std::size_t misses;         ///< allocations that had to ask the runtime
  std::size_t releasing;  ///< bytes on their way back to the runtime; they count against the limit
                          ///< until they are there
};

/// The process's pool of pinned memory. Pinning memory takes several times as long as copying it,
/// so the pool keeps freed blocks for reuse: in sizes of powers of two from 4 KiB to 1 GiB; larger
/// blocks go back to the runtime. The pool hands a block out again only when every stream that used
/// the block has completed that work. Giving memory back to the runtime waits for all work of all
/// devices, so a thread of the library does that, and no call here waits for it longer than it
/// says. Uses by kernels and host functions are recorded by record_stream() (memory.hpp). All
/// members throw errc::forked in a forked child.
class PinnedPool {
 public:
  PinnedPool() = delete;  ///< there is one pool; its functions are static

  /// What the pool holds at this moment. Makes no runtime call.
  [[nodiscard]] static PinnedStatistics statistics();

  /// Makes the bytes in use now the peak.
  static void reset_peak();

  /// Sets the most bytes that the pool may hold, used, cached and on their way back together
  /// (default: no limit). To stay below the limit the pool gives cached blocks back, as trim()
  /// does. An allocation that does not fit does so too, and waits at most a second for them; if it
  /// still does not fit, it throws errc::out_of_memory. Blocks in use beyond a new limit stay;
  /// those that are freed go back with the next allocation or trim().
  static void set_limit(std::size_t bytes);
  /// The limit in bytes; the maximum of std::size_t if none was set.
  [[nodiscard]] static std::size_t limit();

  /// Gives up every cached block that no stream is using; those of staged copies are Staging's. A
  /// thread of the library gives the memory back to the runtime. The call waits at most 0.1 s for
  /// that, which is long enough where the devices are idle; until then statistics() counts the
  /// bytes as `releasing`.
  static void trim();
};

}  // namespace runnel::inline RUNNEL_ABI
