// SPDX-License-Identifier: Apache-2.0
/// The pinned blocks that runnel allocated, in use and cached. Asking whether a pointer is in one takes some nanoseconds, asking the
/// runtime a fraction of a microsecond.
#pragma once

#include "stream/uses.hpp"

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether all of these bytes lie in one block; and if the block is in use, the stream from now on counts among those that use it.
/// @throws std::bad_alloc
[[nodiscard]] bool note_pinned_use(const void* pointer, std::size_t bytes, StreamUse use);
/// Takes a block back, with work under way or not; false for what is not the start of a block in use.
[[nodiscard]] bool give_back_pinned(void* pointer) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
