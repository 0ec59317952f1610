// SPDX-License-Identifier: Apache-2.0
/// Moving bytes between pieces of host memory, and what can be known of user memory before it is touched.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// `height` rows of `width` bytes from one side to the other.
struct Transfer {
  unsigned char* to;
  std::size_t to_pitch;
  const unsigned char* from;
  std::size_t from_pitch;
  std::size_t width;
  std::size_t height;
};
/// Rows that lie end to end on both sides are one row.
[[nodiscard]] Transfer flattened(Transfer t) noexcept;

/// Does it, in the calling thread.
void move_rows(const Transfer& transfer) noexcept;

enum class Purpose { reading, writing };
/// True for memory that no file is behind, with the right to read or write it all; also where the system tells nothing (before Linux 6.11).
/// Takes about a microsecond.
[[nodiscard]] bool surely_usable(const void* begin, std::size_t bytes, Purpose purpose) noexcept;
/// The same for any memory, by having the system fetch each page: false where touching one would end the process, as behind the end of a
/// file that was truncated.
[[nodiscard]] bool fetched(const void* begin, std::size_t bytes, Purpose purpose) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
