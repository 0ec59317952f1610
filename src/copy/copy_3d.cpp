// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "base/check.hpp"
#include "copy/run.hpp"
#include "memory/memory_facts.hpp"

#include <algorithm>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI {
namespace {

using detail::Transfer;

constexpr const char* operation = "copy in three dimensions";

struct Side {
  const unsigned char* begin;
  Pitches pitches;
};

/// @throws errc::invalid_argument unless the memory can hold the rows and slices
void require_slices(const Side& side, const Extent& extent) {
  detail::require_rows(side.begin, side.pitches.row, extent.width, extent.height, operation);
  const std::size_t slice = side.pitches.row * (extent.height - 1) + extent.width;
  if (extent.depth > 1 && side.pitches.slice < slice)
    detail::throw_error(errc::invalid_argument, operation, "the pitch of a slice is smaller than its rows");
  detail::require_rows(side.begin, std::max(side.pitches.slice, slice), slice, extent.depth, operation);
}

/// Where a row begins, counted over all slices.
[[nodiscard]] std::uintptr_t row_of(const Side& side, const Extent& extent, std::size_t row) noexcept {
  return reinterpret_cast<std::uintptr_t>(side.begin) + row / extent.height * side.pitches.slice + row % extent.height * side.pitches.row;
}

/// Whether any row of one side shares bytes with a row of the other. The rows of each side are in the order of their addresses.
[[nodiscard]] bool sides_overlap(const Side& to, const Side& from, const Extent& extent) noexcept {
  const std::size_t rows = extent.height * extent.depth;
  if (row_of(to, extent, rows - 1) + extent.width <= row_of(from, extent, 0)) return false;
  if (row_of(from, extent, rows - 1) + extent.width <= row_of(to, extent, 0)) return false;
  for (std::size_t i = 0, j = 0; i < rows && j < rows;) {
    const std::uintptr_t to_row = row_of(to, extent, i);
    const std::uintptr_t from_row = row_of(from, extent, j);
    if (to_row + extent.width <= from_row)
      ++i;
    else if (from_row + extent.width <= to_row)
      ++j;
    else
      return true;
  }
  return false;
}

[[nodiscard]] bool is_same(const Side& to, const Side& from, const Extent& extent) noexcept {
  return to.begin == from.begin && (extent.height == 1 || to.pitches.row == from.pitches.row) &&
         (extent.depth == 1 || to.pitches.slice == from.pitches.slice);
}

/// As few copies in two dimensions as do the work: each step of `step_to` and `step_from` is one.
struct Plan {
  Transfer first;
  std::size_t copies;
  std::size_t step_to;
  std::size_t step_from;
};

[[nodiscard]] Plan plan(unsigned char* begin, const Side& to, const Side& from, const Extent& extent) noexcept {
  const Pitches a = to.pitches;
  const Pitches b = from.pitches;
  const auto [width, height, depth] = extent;
  const bool slices_touch = depth == 1 || (a.slice == a.row * height && b.slice == b.row * height);
  if (slices_touch) return {{begin, a.row, from.begin, b.row, width, height * depth}, 1, 0, 0};
  const bool short_slices = std::max(a.slice, b.slice) <= detail::largest_pitch;
  const bool rows_touch = height == 1 || (a.row == width && b.row == width);
  if (rows_touch && short_slices) return {{begin, a.slice, from.begin, b.slice, width * height, depth}, 1, 0, 0};
  if (height < depth && short_slices) return {{begin, a.slice, from.begin, b.slice, width, depth}, height, a.row, b.row};
  return {{begin, a.row, from.begin, b.row, width, height}, depth, a.slice, b.slice};
}

}  // namespace

CopyResult copy_3d(StreamRef stream, void* to, Pitches to_pitches, const void* from, Pitches from_pitches, Extent extent, Pageable policy) {
  auto* const begin = static_cast<unsigned char*>(to);
  const Side destination{begin, to_pitches};
  const Side source{static_cast<const unsigned char*>(from), from_pitches};
  Plan copies{{begin, 0, source.begin, 0, 0, 0}, 1, 0, 0};  // nothing to do, which the stream is asked for all the same
  if (extent.width > 0 && extent.height > 0 && extent.depth > 0) {
    require_slices(destination, extent);
    require_slices(source, extent);
    if (!is_same(destination, source, extent)) {
      if (sides_overlap(destination, source, extent))
        detail::throw_error(errc::invalid_argument, operation, "source and destination overlap in part");
      copies = plan(begin, destination, source, extent);
    }
  }
  CopyResult result = CopyResult::nothing;
  for (std::size_t i = 0; i < copies.copies; ++i) {
    result = detail::together(result, detail::copy_request(stream, {copies.first, std::nullopt, std::nullopt, policy}, operation));
    copies.first.to += copies.step_to;
    copies.first.from += copies.step_from;
  }
  return result;
}

}  // namespace runnel::inline RUNNEL_ABI
