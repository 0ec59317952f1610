// SPDX-License-Identifier: Apache-2.0
/// How streams end.
#pragma once

#include "slot/slots.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Ends a stream: ends all views of the slot, gives its end a number, destroys the
/// attachments, destroys the native stream if the slot owns it, and frees the slot or leaves it to
/// the remaining Stream objects. Inside a host function only the views end at once, and the end of
/// a borrowed stream stays unknown; the service thread takes the other steps.
/// `is_orphaned`: other code has destroyed the native stream. Nothing can be recorded on it, so its
/// end stays unknown.
void retire_slot(Slot* slot, bool is_orphaned = false) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
