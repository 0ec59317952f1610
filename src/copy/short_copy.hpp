// SPDX-License-Identifier: Apache-2.0
/// Small copies between pageable memory and a device, on an idle stream: the calling thread moves
/// the bytes through a pinned block. That takes some microseconds, less than waking a worker.
#pragma once

#include "copy/facts.hpp"
#include "copy/transfer.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

enum class ShortCopy {
  done,            ///< the bytes have been read from, or written to, the host's side
  stream_is_busy,  ///< the stream has work ahead
  not_possible,    ///< there is no free pinned block, the memory needs a check of each page, or the
                   ///< device is too slow at the moment
};
/// Pageable memory is unchanged unless the copy is done. The function waits for work of other
/// streams for at most 30 us. Requires: the stream is not being captured, and its device is
/// current; the transfer has at most short_copy_up_to bytes.
[[nodiscard]] ShortCopy try_short_copy(CopyCall& call, const Transfer& transfer,
                                       Direction direction);
/// Returns the pinned blocks of such copies to the pool, except those that threads use now.
void give_back_short_copy_blocks() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
