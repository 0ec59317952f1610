// SPDX-License-Identifier: Apache-2.0
/// Checks of a user's pages before a thread of the library touches them. Touching a page past the
/// end of a truncated file, or a page that does not permit it, would end the process.
#pragma once

#include "base/populate.hpp"
#include "copy/transfer.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// What a copy does to the host's pages.
[[nodiscard]] inline PageUse page_use(Direction direction) noexcept {
  return direction == Direction::to_device ? PageUse::read : PageUse::write;
}

/// False if a page maps a file, or does not permit `use`. True otherwise, and if the system cannot
/// answer (before Linux 6.11). Takes about a microsecond. `plain` is a mapping that was found
/// usable and maps no file, or empty: further ranges within it need no system call.
[[nodiscard]] bool look_usable(Range range, PageUse use, Range& plain) noexcept;
[[nodiscard]] inline bool look_usable(Range range, PageUse use) noexcept {
  Range plain{};
  return look_usable(range, use, plain);
}
/// False if the process has no readable memory at the address, as for device memory. True if the
/// system cannot answer.
bool is_process_memory(const void* address) noexcept;
/// Populates each page. False if one of them does not permit `use`.
[[nodiscard]] bool populate_pages(Range range, PageUse use) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
