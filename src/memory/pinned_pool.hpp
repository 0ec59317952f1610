// SPDX-License-Identifier: Apache-2.0
/// Blocks of the pinned pool, found by pointer. A lookup takes some nanoseconds; a query of the
/// runtime takes a fraction of a microsecond.
#pragma once

#include "slot/slots.hpp"

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether all of these bytes are in one block. If that block is in use, records a use by the
/// stream. @throws std::bad_alloc
[[nodiscard]] bool note_pinned_use(const void* pointer, size_t bytes, StreamKey use);
/// Returns a block to the pool, also while streams still use it. Returns false, and changes
/// nothing, unless the pointer is the start of a block in use.
[[nodiscard]] bool deallocate_pinned(void* pointer) noexcept;

/// The start of the block in use that contains the address, or null.
[[nodiscard]] void* pinned_block_of(const void* pointer) noexcept;
/// A block that the library uses itself, which neither live_objects() nor hooks see. Null if there
/// is none at once: this function waits for nothing, and gives nothing back.
[[nodiscard]] void* try_allocate_own_pinned(size_t bytes);
void free_own_pinned(void* pointer) noexcept;
/// Called when an allocation finds no pinned memory: gives back what copies keep for later ones.
/// `beyond_limit`: only what counts against the pool's limit.
inline constinit sync::Atomic<void (*)(bool beyond_limit) noexcept> give_back_copy_memory{nullptr};

}  // namespace runnel::inline RUNNEL_ABI::detail
