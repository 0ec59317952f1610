// SPDX-License-Identifier: Apache-2.0
/// Frees a block of device memory after the work of all streams that use it. A dropped block has
/// one of four fates:
///
/// * Only its own stream uses it: the free is enqueued there.
/// * It is used in a capture of its own stream: the free becomes a node of the graph, behind the
/// other users in that capture.
/// * Another stream uses it, or nothing can be enqueued on its own: the free is deferred. The
/// service thread frees the block once the work of all of them is complete.
/// * Another stream uses it in a capture without its own stream: it is never freed, because the
/// graph may run at any time.
///
/// Memory of the program's resources is deallocated at once, if that is possible: on a stream of
/// the library that waits for the other users.
#pragma once

#include "base/sync.hpp"
#include "slot/reclaimer.hpp"

#include <runnel/memory.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// A block to be freed. A buffer with other users or a resource has this object from then on, so
/// that dropping it allocates nothing. `own` is the stream in whose order it is freed.
struct BlockFree : DeferredWork {
  void* pointer = nullptr;
  int device = 0;
  size_t bytes = 0;
  SharedResource resource{};  // Null: the device's own memory.
  // While the buffer lives, several threads may add users.
  sync::Mutex adding{};                 // protects `others`
  sync::Atomic<uint64_t> last_user{0};  // the id of a stream in `others`, which may be the owner
};

/// Whether the stream is being captured. Returns false if it has ended, so that its capture is
/// abandoned, or if this thread cannot reach it. Requires: the stream's device is current if its
/// handle needs that.
bool is_captured(const HandleLock& stream) noexcept;
/// Frees the block now. Returns false if the free must be deferred.
[[nodiscard]] bool free_block(BlockFree& block) noexcept;
/// Defers the free. Takes ownership of the object.
void defer_free(BlockFree& block) noexcept;
/// Defers the free of an object on the stack, which has no resource. Without memory for a copy, the
/// block is freed after a wait for the devices, or leaks if this is a host function or captures
/// were seen.
void defer_copy(BlockFree& block) noexcept;

/// The numbers of frees that were deferred, and of those that were made since.
inline constinit sync::Atomic<size_t> frees_deferred{0}, frees_made{0};
inline bool has_deferred_frees() noexcept {
  return frees_made.load(std::memory_order_acquire) !=
         frees_deferred.load(std::memory_order_acquire);
}
/// Makes the frees whose streams have passed. Returns whether none is deferred any more.
bool make_frees() noexcept;
/// The same, again and again, until more than `made` frees were made, or none is deferred. Returns
/// whether more were made.
[[nodiscard]] bool wait_for_deferred_free(size_t made,
                                          std::chrono::steady_clock::time_point deadline) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
