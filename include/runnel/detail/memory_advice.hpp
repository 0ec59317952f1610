// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// What advise() takes; <runnel/managed_buffer.hpp> has the function.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI {

/// What a program tells of its use of managed memory. Advice changes where pages lie and how they
/// move, and never the bytes.
enum class MemoryAdvice {
  mostly_read = 1,        ///< each place that reads a page may have a copy of it
  not_mostly_read,        ///< takes that back
  preferred_place,        ///< pages stay at that place while it is possible
  no_preferred_place,     ///< takes that back
  accessed_by_place,      ///< that place reaches the pages without moving them
  not_accessed_by_place,  ///< takes that back
};

}  // namespace runnel::inline RUNNEL_ABI
