// SPDX-License-Identifier: Apache-2.0
/// Makes the system provide pages before they are touched.
#pragma once

#include <runnel/config.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

enum class PageUse { read, write };

/// The size of a page: 4 KiB, or up to 64 KiB on 64-bit ARM.
inline size_t page_bytes() noexcept {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Makes the system provide all pages of the range now. Requires: `begin` and `end` are
/// page-aligned.
/// @return 0 or an errno value. EINVAL means memory of a device, or Linux before 5.14.
[[nodiscard]] inline int populate(uintptr_t begin, uintptr_t end, PageUse use) noexcept {
  // MADV_POPULATE_READ and MADV_POPULATE_WRITE, which older headers do not define.
  constexpr int populate_read = 22, populate_write = 23;
  const int advice = use == PageUse::read ? populate_read : populate_write;
  for (;;) {
    if (madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0) return 0;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
