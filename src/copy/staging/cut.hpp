// SPDX-License-Identifier: Apache-2.0
/// How a copy is cut into the pieces that go through a ring.
#pragma once

#include "copy/transfer.hpp"

#include <runnel/config.hpp>

#include <algorithm>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// A ring has room for this many pieces of the usual size.
inline constexpr size_t pieces_per_ring = 8;
/// The largest piece. `row`: the bytes of the copies in a row. Larger pieces make a long one
/// faster.
inline size_t largest_piece(size_t ring_bytes, size_t row) noexcept {
  return ring_bytes / pieces_per_ring * (row / 4 >= ring_bytes ? 2 : 1);
}
/// Each piece costs the stream about 6 us in addition to its copy (a wait, a write, and the gaps
/// around them), so smaller pieces are slow.
inline constexpr size_t smallest_piece = size_t{512} << 10;

/// The number of pieces of that size.
inline size_t count_pieces(const Transfer& rows, size_t bytes, size_t piece) noexcept {
  const auto divided = [](size_t a, size_t b) { return (a + b - 1) / b; };
  if (rows.height <= 1) return divided(bytes, piece);
  return rows.width > piece ? rows.height * divided(rows.width, piece)
                            : divided(rows.height, piece / rows.width);
}

/// The size of the next piece of rows, from byte `begin` on: whole rows, or a part of one row, so
/// that one runtime copy moves it.
inline size_t fit_rows(const Transfer& rows, size_t begin, size_t wanted) noexcept {
  const size_t in_row = begin % rows.width;
  if (in_row != 0 || wanted < rows.width) return std::min(wanted, rows.width - in_row);
  return wanted / rows.width * rows.width;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
