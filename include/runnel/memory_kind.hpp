// SPDX-License-Identifier: Apache-2.0
/// What a pointer points to.
#pragma once

#include <runnel/device.hpp>

namespace runnel::inline RUNNEL_ABI {

/// Kinds of memory, as copies tell them apart.
enum class MemoryKind {
  pageable,  ///< ordinary host memory, or an address nobody knows
  pinned,    ///< host memory that copy engines can reach
  device,    ///< a device's own
  managed,   ///< moves between host and device by itself
};

/// What is known of a pointer.
struct PointerInfo {
  MemoryKind kind;  ///< `pageable` where nobody knows the pointer
  Device device;    ///< meaningful for `device` and `managed`; for the others 0
};
/// Asks the runtime; also takes pointers into the middle of a block. Null is pageable.
[[nodiscard]] PointerInfo pointer_info(const void* pointer);

}  // namespace runnel::inline RUNNEL_ABI
