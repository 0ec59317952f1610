// SPDX-License-Identifier: Apache-2.0
/// What the system says of a user's pages before a thread of the library touches them. Touching a
/// page behind the end of a truncated file, or one without the right to, would end the process.
#pragma once

#include "base/populate.hpp"
#include "copy/transfer.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// What a copy does to the host's pages.
[[nodiscard]] inline PageUse page_use(Direction direction) noexcept {
  return direction == Direction::to_device ? PageUse::read : PageUse::write;
}

/// False if a file is behind a page, or a page does not allow `use`. True if there is neither, and
/// where the system cannot say (before Linux 6.11). Takes about a microsecond.
[[nodiscard]] bool look_usable(Range range, PageUse use) noexcept;
/// The same for many ranges: `plain` is a mapping that was found usable and has no file behind it,
/// or empty. Within it the system is not asked again.
[[nodiscard]] bool look_usable(Range range, PageUse use, Range& plain) noexcept;
/// False if the address is one at which the process has no memory that it may read, as a device's
/// is. True where the system cannot say.
[[nodiscard]] bool is_process_memory(const void* address) noexcept;
/// Has the system bring in each page. False if one of them does not allow `use`.
[[nodiscard]] bool populate_pages(Range range, PageUse use) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
