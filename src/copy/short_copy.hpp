// SPDX-License-Identifier: Apache-2.0
/// Small copies between pageable memory and a device: the calling thread moves the bytes through a
/// small pinned ring of the stream, and enqueues one runtime call. That takes some microseconds,
/// less than waking a worker.
#pragma once

#include "copy/facts.hpp"
#include "copy/transfer.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Returns whether the bytes have been read from, or written to, the host's side. If not, that side
/// is unchanged: there is no memory for a ring, it is full or used by another thread, a page of the
/// memory may be unusable, copies in a row are faster by several workers, or the bytes did not
/// arrive soon. To the host the function waits for at most 30 us. Requires: the stream is not being
/// captured, and its device is current; the transfer has at most short_copy_up_to bytes; a pageable
/// source may be read now.
[[nodiscard]] bool try_short_copy(CopyCall& call, const Transfer& transfer, Direction direction);
/// Returns the pinned memory of such copies to the pool, except what threads use now.
void give_back_short_copy_rings() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
