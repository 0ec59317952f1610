// SPDX-License-Identifier: Apache-2.0
/// The frees that wait for streams which no other stream can be made to wait for now, such as the
/// default stream of another thread. The memory is freed at a later allocation or free. To wait for
/// the device instead would block the caller, and would break every capture.
///
/// A resource may hold a lock while it calls the library, so that it must not be called from there:
/// only calls about buffers that have a resource, and trim(), give memory back to resources.
#pragma once

#include "base/sync.hpp"
#include "memory/block_free.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Takes the block, records its points, and frees it once they are complete. Leaks it if that will
/// never be known. False, and the block is unchanged, if there is no memory for the entry.
[[nodiscard]] bool defer_free(BlockFree& block) noexcept;

enum class FreeKind { device, resource };
inline constinit std::array<sync::Atomic<std::size_t>, 2> frees_waiting{0, 0};
[[nodiscard]] inline bool are_frees_waiting(FreeKind kind = FreeKind::device) noexcept {
  return frees_waiting[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed) > 0;
}

/// Frees what can be freed now.
void run_complete_frees() noexcept;
/// Gives back to their resources what can be given back now. Does nothing within a call of a
/// resource.
void run_complete_resource_frees() noexcept;
/// Blocks the caller until some of the memory that no resource owns can be freed, and frees it.
/// False if the runtime will not say when that is: another thread has to call the library first, or
/// the runtime fails.
[[nodiscard]] bool wait_for_a_free() noexcept;
/// Waits for all devices, and frees all that no resource owns. If the process has captured streams,
/// it does nothing, because the wait would break a capture.
void run_all_frees() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
