// SPDX-License-Identifier: Apache-2.0
/// Copies of few bytes between ordinary host memory and a device, on a stream with nothing ahead: the calling thread moves them through a
/// pinned block, in less time than others need to hear of it.
#pragma once

#include "copy/staging/stage.hpp"

#include <runnel/config.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// Does it, in some microseconds more than the moving takes, whatever other streams are at; ordinary memory may be reused, or read, on
/// return. False where that cannot be: for more bytes, on a stream with work ahead, for memory that has to be looked at page by page, where
/// no pinned memory is to be had, and where the device is not that quick. Ordinary memory is as it was then. `idle` is what is known of the
/// stream, which is not being captured.
[[nodiscard]] bool carried_at_once(Slot& slot, const Transfer& transfer, Side side, std::optional<bool>& idle, const char* operation);
/// The pinned memory that such copies keep, but for what one is using.
void give_back_kept_blocks() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
