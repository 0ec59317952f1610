// SPDX-License-Identifier: Apache-2.0
/// Copies between pageable memory and a device that do not block the caller.
///
/// The call enqueues everything on the caller's own stream. For each piece these are: a wait for a
/// value, the copy between the device and a part of a pinned ring, and a write of a value. Workers
/// move the bytes between the ring and user memory, and read and set the values. Workers never call
/// the runtime.
///
/// Streams cannot deadlock here, because no wait depends on work that is enqueued later, on any
/// stream. A ring belongs to one stream at a time, so only earlier pieces of that stream and the
/// workers free its memory. And a worker never waits for the values of one stream while it could
/// move a piece of another.
///
/// A worker reads the source only after the stream has reached the copy, since earlier work of the
/// stream may write the source. If nothing ahead writes it, workers fill the pieces of the next
/// copies while the device still copies earlier ones.
#pragma once

#include "copy/staging/job.hpp"
#include "slot/slots.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Enqueues the work as one job. `may_read_now`: it goes to the device, and nothing ahead in the
/// stream writes the source, so that workers may read it at once. Requires: there is at least one
/// byte; each host side is pageable memory, or pinned in parts; the stream's device is current.
void stage(Slot& slot, Work work, bool may_read_now, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
