// SPDX-License-Identifier: Apache-2.0
/// An object that other code attaches to a stream.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// An element of StreamSlot::attachments. It is destroyed with the stream, before the native
/// handle.
struct Attachment {
  const void* key;  ///< an address that identifies the kind of attachment
  /// Called outside host functions, and only when the runtime may be called: not in a forked child,
  /// nor while the process exits.
  void (*destroy)(Attachment*) noexcept;
  Attachment* next = nullptr;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
