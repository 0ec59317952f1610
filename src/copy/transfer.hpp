// SPDX-License-Identifier: Apache-2.0
/// Rows of bytes to copy: what every copy consists of.
#pragma once

#include "backend.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace runnel::inline RUNNEL_ABI::detail {

/// `height` rows of `width` bytes. On each side, row i starts i * pitch bytes after the first one.
struct Transfer {
  unsigned char* to;
  size_t to_pitch;
  const unsigned char* from;
  size_t from_pitch;
  size_t width;
  size_t height;

  size_t bytes() const noexcept { return width * height; }
};

inline Transfer single_row(void* to, const void* from, size_t bytes) noexcept {
  return {static_cast<unsigned char*>(to),
          bytes,
          static_cast<const unsigned char*>(from),
          bytes,
          bytes,
          1};
}

/// The same transfer, as a single row if the rows lie end to end on both sides.
inline Transfer flattened(const Transfer& t) noexcept {
  return t.to_pitch == t.width && t.from_pitch == t.width ? single_row(t.to, t.from, t.bytes()) : t;
}

/// The runtimes take no larger pitch.
inline constexpr size_t largest_pitch = (size_t{1} << 31) - 1;
inline bool fits_one_copy(const Transfer& t) noexcept {
  return t.height == 1 || (t.to_pitch <= largest_pitch && t.from_pitch <= largest_pitch);
}

/// Enqueues the transfer as one runtime copy. Requires: fits_one_copy().
[[nodiscard]] inline backend::status enqueue_transfer(const Transfer& t,
                                                      native::stream stream) noexcept {
  return t.height == 1 ? backend::copy_async(t.to, t.from, t.width, stream)
                       : backend::copy_2d_async(t.to, t.to_pitch, t.from, t.from_pitch, t.width,
                                                t.height, stream);
}

/// Copies the bytes in the calling thread. Requires: both sides are host memory.
inline void copy_rows(const Transfer& transfer) noexcept {
  const Transfer rows = flattened(transfer);
  for (size_t row = 0; row < rows.height; ++row)
    std::memcpy(rows.to + row * rows.to_pitch, rows.from + row * rows.from_pitch, rows.width);
}

/// The bytes from the begin of the first row to the end of the last one, including the gaps between
/// rows.
struct Range {
  const void* begin;
  size_t bytes;
};
inline Range range_of_rows(const void* begin, size_t pitch, size_t width, size_t height) noexcept {
  return {begin, pitch * (height - 1) + width};
}
/// Whether they share a byte.
inline bool do_overlap(Range a, Range b) noexcept {
  const auto begin_a = reinterpret_cast<uintptr_t>(a.begin);
  const auto begin_b = reinterpret_cast<uintptr_t>(b.begin);
  return a.bytes > 0 && b.bytes > 0 && begin_a < begin_b + b.bytes && begin_b < begin_a + a.bytes;
}
/// Whether any row of one side shares bytes with a row of the other. `to_row(i)` and `from_row(i)`
/// are the addresses of row i, which rise.
template <class ToRow, class FromRow>
bool do_rows_overlap(size_t rows, size_t width, ToRow to_row, FromRow from_row) noexcept {
  for (size_t i = 0, j = 0; i < rows && j < rows;) {
    const void* const to = to_row(i);
    const void* const from = from_row(j);
    if (do_overlap({to, width}, {from, width})) return true;
    ++(std::less<>{}(to, from) ? i : j);
  }
  return false;
}

/// The direction of a transfer between host and device.
enum class Direction { to_device, to_host };

/// The transfer's range of host memory.
inline Range host_range(const Transfer& t, Direction direction) noexcept {
  return direction == Direction::to_device ? range_of_rows(t.from, t.from_pitch, t.width, t.height)
                                           : range_of_rows(t.to, t.to_pitch, t.width, t.height);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
