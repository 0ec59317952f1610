// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// The argument of advise(), which is in <runnel/managed_buffer.hpp>.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI {

/// Advice about the use of managed memory. It affects where pages are and how they move, never
/// their contents.
enum class MemoryAdvice {
  mostly_read = 1,        ///< each device or host that reads a page may have a copy of it
  not_mostly_read,        ///< undoes mostly_read
  preferred_place,        ///< pages stay at the given location as long as possible
  no_preferred_place,     ///< undoes preferred_place
  accessed_by_place,      ///< the given device or host accesses the pages without moving them
  not_accessed_by_place,  ///< undoes accessed_by_place
};

}  // namespace runnel::inline RUNNEL_ABI
