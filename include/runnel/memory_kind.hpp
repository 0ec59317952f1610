// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Kinds of memory, and the kind of memory that a pointer points to.
#pragma once

#include <runnel/device.hpp>

namespace runnel::inline RUNNEL_ABI {

/// Kinds of memory that copies distinguish.
enum class MemoryKind {
  pageable,  ///< host memory from malloc, new or mmap; also any other address that the runtime has
             ///< no record of
  pinned,    ///< host memory that copy engines can reach
  device,    ///< a device's own memory
  managed,   ///< memory that the runtime moves between host and device on demand
};

/// What the runtime knows about a pointer.
struct PointerInfo {
  MemoryKind kind;  ///< `pageable` if the runtime does not know the pointer
  Device device;    ///< the device of `device` and `managed` memory; Device{0} for the others
};
/// Queries the runtime about a pointer, which may point into the middle of a block. A null pointer
/// is reported as pageable.
[[nodiscard]] PointerInfo pointer_info(const void* pointer);

}  // namespace runnel::inline RUNNEL_ABI
