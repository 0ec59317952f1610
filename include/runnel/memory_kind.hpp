// SPDX-License-Identifier: Apache-2.0
/// Kinds of memory, and which kind a pointer points to.
#pragma once

#include <runnel/device.hpp>

namespace runnel::inline RUNNEL_ABI {

/// Kinds of memory that copies distinguish.
enum class MemoryKind {
  pageable,  ///< host memory from malloc, new or mmap; also any address that the runtime does not know
  pinned,    ///< host memory that copy engines can reach
  device,    ///< a device's own memory
  managed,   ///< memory that the runtime moves between host and device on demand
};

/// What the runtime knows of a pointer.
struct PointerInfo {
  MemoryKind kind;  ///< `pageable` if the runtime does not know the pointer
  Device device;    ///< the device of `device` and `managed` memory; Device{0} for the others
};
/// Asks the runtime about a pointer, which may point into the middle of a block. Null is pageable.
[[nodiscard]] PointerInfo pointer_info(const void* pointer);

/// What a program tells of its use of managed memory. Advice changes where pages lie and how they move, and never the bytes.
enum class MemoryAdvice {
  mostly_read = 1,        ///< each place that reads a page may have a copy of it
  not_mostly_read,        ///< takes that back
  preferred_place,        ///< pages stay at that place while it is possible
  no_preferred_place,     ///< takes that back
  accessed_by_place,      ///< that place reaches the pages without moving them
  not_accessed_by_place,  ///< takes that back
};

}  // namespace runnel::inline RUNNEL_ABI
