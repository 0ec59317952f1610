// SPDX-License-Identifier: Apache-2.0
/// An object that other code keeps with a stream.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Belongs to StreamSlot::attachments. It is destroyed when the stream ends, before the native
/// handle.
struct Attachment {
  const void* key;  ///< an address that only this kind of attachment has
  /// Called outside host functions, and only where the runtime may be called: not in a forked
  /// child, nor while the process exits.
  void (*destroy)(Attachment*) noexcept;
  Attachment* next = nullptr;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
