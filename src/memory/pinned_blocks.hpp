// SPDX-License-Identifier: Apache-2.0
/// The pinned blocks that runnel allocated, in use and cached. To look a pointer up here takes some
/// nanoseconds; to ask the runtime takes a fraction of a microsecond.
#pragma once

#include "stream/uses.hpp"

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether all of these bytes lie in one block. If that block is in use, counts a use by the
/// stream. @throws std::bad_alloc
[[nodiscard]] bool note_pinned_use(const void* pointer, std::size_t bytes, StreamUse use);
/// Takes a block back, also while streams still work on it. False, and nothing changed, unless the
/// pointer is the start of a block in use.
[[nodiscard]] bool give_back_pinned(void* pointer) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
