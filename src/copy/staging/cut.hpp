// SPDX-License-Identifier: Apache-2.0
/// How a copy is cut into the pieces that go through a ring.
#pragma once

#include "copy/transfer.hpp"

#include <runnel/config.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// A ring has room for this many pieces of the usual size.
inline constexpr std::size_t pieces_per_ring = 8;
/// The largest piece. `row`: the bytes of the copies in a row. Larger pieces make a long one
/// faster.
[[nodiscard]] inline std::size_t largest_piece(std::size_t ring_bytes, std::size_t row) noexcept {
  return ring_bytes / pieces_per_ring * (row / 4 >= ring_bytes ? 2 : 1);
}
/// Each piece costs the stream about 6 us in addition to its copy (a wait, a write, and the gaps
/// around them), so smaller pieces are slow.
inline constexpr std::size_t smallest_piece = std::size_t{512} << 10;

/// Computes the sizes of a copy's pieces. The stream idles while workers move a large piece, unless
/// another piece is ready. So the first pieces of a copy to the device are small, and each is twice
/// as large as the one before, unless the ring still contains pieces of the stream's earlier
/// copies. The last pieces of a copy to the host shrink in the same way, since the stream waits
/// until the last one is in user memory.
class Cutter {
 public:
  /// `largest`: the largest size. `is_stream_busy`: pieces of earlier copies keep the stream busy.
  Cutter(Direction direction, std::size_t bytes, std::size_t largest, bool is_stream_busy) noexcept
      : left_{bytes},
        largest_{largest},
        to_host_{direction == Direction::to_host},
        next_{is_stream_busy ? largest : smallest_piece} {}

  [[nodiscard]] bool is_done() const noexcept { return left_ == 0; }
  /// The size that the next piece should have.
  [[nodiscard]] std::size_t wanted() const noexcept {
    const std::size_t size =
        to_host_ ? std::max(std::bit_floor(left_ / 2 + 1), smallest_piece) : next_;
    return std::min({left_, size, largest_});
  }
  /// The next piece has this size.
  void take(std::size_t bytes) noexcept {
    left_ -= bytes;
    next_ = std::min(2 * next_, largest_);
  }

 private:
  std::size_t left_;
  std::size_t largest_;
  bool to_host_;
  std::size_t next_;
};

/// The number of pieces of that size.
[[nodiscard]] inline std::size_t count_pieces(const Transfer& rows, std::size_t bytes,
                                              std::size_t piece) noexcept {
  const auto divided = [](std::size_t a, std::size_t b) { return (a + b - 1) / b; };
  if (rows.height <= 1) return divided(bytes, piece);
  return rows.width > piece ? rows.height * divided(rows.width, piece)
                            : divided(rows.height, piece / rows.width);
}

/// The size of the next piece of rows, from byte `begin` on: whole rows, or a part of one row, so
/// that one runtime copy moves it.
[[nodiscard]] inline std::size_t fit_rows(const Transfer& rows, std::size_t begin,
                                          std::size_t wanted) noexcept {
  const std::size_t in_row = begin % rows.width;
  if (in_row != 0 || wanted < rows.width) return std::min(wanted, rows.width - in_row);
  return wanted / rows.width * rows.width;
}

}}}  // namespace runnel::RUNNEL_ABI::detail
