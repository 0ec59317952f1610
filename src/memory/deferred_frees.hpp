// SPDX-License-Identifier: Apache-2.0
/// Frees that depend on streams which no other stream can currently be made to wait for, such as
/// the default stream of another thread. A later allocation or free performs them. Waiting for the
/// device instead would block the caller, and would break every capture.
///
/// A resource may hold a lock while it calls the library, and must not be called again from there.
/// Therefore only calls for buffers that have a resource, and trim(), deallocate memory to
/// resources.
#pragma once

#include "base/sync.hpp"
#include "memory/block_free.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Takes the block over, records its points, and frees it once they are complete. Leaks it if their
/// completion can never be determined. Returns false, and leaves the block unchanged, if there is
/// no memory for the entry.
[[nodiscard]] bool defer_free(BlockFree& block) noexcept;

enum class FreeKind { device, resource };
inline constinit std::array<sync::Atomic<std::size_t>, 2> deferred_free_counts{0, 0};
[[nodiscard]] inline bool has_deferred_frees(FreeKind kind = FreeKind::device) noexcept {
  return deferred_free_counts[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed) > 0;
}

/// Frees the blocks without a resource whose points are complete.
void run_complete_frees() noexcept;
/// Deallocates to their resources the blocks whose points are complete. Does nothing within a call
/// of a resource.
void run_complete_resource_frees() noexcept;
/// Blocks the caller until at least one block without a resource can be freed, and frees it.
/// Returns false if no block can become free during the wait: another thread must call the library
/// first, or the runtime fails.
[[nodiscard]] bool wait_for_deferred_free() noexcept;
/// Waits for all devices, and frees all blocks without a resource. If the process has captured
/// streams, it does nothing, because the wait would break a capture.
void run_all_frees() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
