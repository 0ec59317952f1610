// SPDX-License-Identifier: Apache-2.0
/// The pinned blocks that runnel allocated: asking here takes some nanoseconds, asking the runtime a fraction of a microsecond.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// @throws std::bad_alloc
void add_pinned_block(const void* pointer, std::size_t bytes);
void remove_pinned_block(const void* pointer) noexcept;
/// Whether all of these bytes lie in one block.
[[nodiscard]] bool in_pinned_block(const void* pointer, std::size_t bytes) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
