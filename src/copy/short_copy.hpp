// SPDX-License-Identifier: Apache-2.0
/// Copies of few bytes between pageable memory and a device, on a stream with nothing ahead: the
/// calling thread moves the bytes through a pinned block. That takes some microseconds, less than
/// to wake a worker.
#pragma once

#include "copy/facts.hpp"
#include "copy/transfer.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

enum class ShortCopy {
  done,            ///< the bytes have been read from, or written to, the host's side
  stream_is_busy,  ///< the stream has work ahead
  not_possible,    ///< no pinned block is to be had, the memory needs a look at each page, or the
                   ///< device is too slow just now
};
/// Unless the copy is done, pageable memory is unchanged. The caller waits 30 us at most for work
/// of other streams. Requires: the stream is not being captured, and its device is current; the
/// transfer has at most short_copy_up_to bytes.
[[nodiscard]] ShortCopy try_short_copy(CopyCall& call, const Transfer& transfer,
                                       Direction direction);
/// Gives the pinned blocks of such copies back to the pool, except those in use at this moment.
void give_back_short_copy_blocks() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
