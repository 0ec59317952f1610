// SPDX-License-Identifier: Apache-2.0
/// Blocks of the pinned pool, found by pointer. A lookup takes some nanoseconds; a query of the
/// runtime takes a fraction of a microsecond.
#pragma once

#include "stream/slots.hpp"

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// Whether all of these bytes are in one block. If that block is in use, records a use by the
/// stream. @throws std::bad_alloc
[[nodiscard]] bool note_pinned_use(const void* pointer, std::size_t bytes, StreamKey use);
/// Returns a block to the pool, also while streams still use it. Returns false, and changes
/// nothing, unless the pointer is the start of a block in use.
[[nodiscard]] bool deallocate_pinned(void* pointer) noexcept;

}}}  // namespace runnel::RUNNEL_ABI::detail
