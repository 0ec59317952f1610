// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>
#include <runnel/detail/strided.hpp>

#include "base/check.hpp"
#include "copy/run.hpp"
#include "memory/memory_facts.hpp"

#include <algorithm>
#include <span>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

/// One side of a copy. `stride` selects this side's stride of a dimension.
struct Side {
  const unsigned char* begin;
  size_t StridedDimension::* stride;
};
constexpr auto to_stride = &StridedDimension::to_stride;
constexpr auto from_stride = &StridedDimension::from_stride;

using Dimensions = std::span<const StridedDimension>;

/// The dimensions in the order of the destination's strides, the innermost first. Dimensions that
/// lie end to end on both sides are merged.
struct Shape {
  size_t width;  // bytes in a row
  std::array<StridedDimension, max_strided_dimensions> dimensions{};
  size_t rank = 0;

  Dimensions used() const noexcept { return {dimensions.data(), rank}; }
  void add(const StridedDimension& outer) noexcept {
    StridedDimension& inner = dimensions[rank == 0 ? 0 : rank - 1];
    const auto is_next = [&](auto stride) {
      return outer.*stride == (rank == 0 ? width : inner.*stride * inner.count);
    };
    if (!is_next(to_stride) || !is_next(from_stride))
      dimensions[rank++] = outer;
    else if (size_t& merged = rank == 0 ? width : inner.count;
             __builtin_mul_overflow(merged, outer.count, &merged))
      merged = ~size_t{0};  // span_of() refuses it
  }
};

Shape shape_of(size_t width, std::span<StridedDimension> dimensions) noexcept {
  std::ranges::sort(dimensions, {}, to_stride);
  Shape shape{width};
  for (const StridedDimension& each : dimensions)
    if (each.count != 1) shape.add(each);
  return shape;
}

/// The bytes from the first one to the last one. @throws errc::invalid_argument unless each
/// dimension encloses the inner ones, and the whole fits into memory
size_t span_of(const Shape& shape, Side side, const char* operation) {
  size_t span = shape.width;
  for (const StridedDimension& each : shape.used()) {
    if (each.*side.stride < span)
      throw_invalid_argument(
          operation,
          "the layouts differ, or elements overlap: copy between memory of one layout, and "
          "transpose with a kernel");
    require_rows(side.begin, each.*side.stride, span, each.count, operation);
    span += each.*side.stride * (each.count - 1);
  }
  require_rows(side.begin, span, span, 1, operation);
  return span;
}

/// The number of rows.
size_t count_of(Dimensions dimensions) noexcept {
  size_t rows = 1;
  for (const StridedDimension& each : dimensions) rows *= each.count;
  return rows;
}
/// Where a row begins, from the first one. Rows are counted over all dimensions; their addresses
/// rise on each side.
size_t offset_of(Dimensions dimensions, Side side, size_t row) noexcept {
  size_t at = 0;
  for (const StridedDimension& each : dimensions) {
    at += row % each.count * (each.*side.stride);
    row /= each.count;
  }
  return at;
}

/// Whether any row of one side shares bytes with a row of the other.
bool do_sides_overlap(const Shape& shape, Side to, Side from) noexcept {
  const Dimensions used = shape.used();
  return do_rows_overlap(
      count_of(used), shape.width, [&](size_t row) { return to.begin + offset_of(used, to, row); },
      [&](size_t row) { return from.begin + offset_of(used, from, row); });
}

bool is_same(const Shape& shape, Side to, Side from) noexcept {
  return to.begin == from.begin && std::ranges::all_of(shape.used(), [](const auto& each) {
           return each.to_stride == each.from_stride;
         });
}

/// Moves the dimension to the front whose rows become one runtime copy: the longest one that the
/// runtimes take.
void choose_rows(Shape& shape) noexcept {
  const auto rows_in_one_copy = [](const StridedDimension& each) {
    return std::max(each.to_stride, each.from_stride) <= largest_pitch ? each.count : 1;
  };
  const std::span used{shape.dimensions.data(), shape.rank};
  const auto chosen = std::ranges::max_element(used, {}, rows_in_one_copy);
  std::rotate(used.begin(), chosen, chosen + 1);
}

}  // namespace

CopyResult copy_strided(StreamRef stream, void* to, const void* from, size_t width,
                        std::span<StridedDimension> dimensions, const CopyOptions& options,
                        const char* operation) {
  const Side destination{static_cast<const unsigned char*>(to), to_stride};
  const Side source{static_cast<const unsigned char*>(from), from_stride};
  // An empty copy is a request, too: it still validates the stream.
  CopyRequest request =
      request_of({static_cast<unsigned char*>(to), 0, source.begin, 0, 0, 0}, options);
  const bool is_empty = width == 0 || std::ranges::any_of(dimensions, [](const auto& each) {
                          return each.count == 0;
                        });
  if (is_empty) return copy_request(stream, request, operation);
  Shape shape = shape_of(width, dimensions);
  const size_t to_span = span_of(shape, destination, operation);
  const size_t from_span = span_of(shape, source, operation);
  if (is_same(shape, destination, source)) return copy_request(stream, request, operation);
  if (do_overlap({to, to_span}, {from, from_span}) && do_sides_overlap(shape, destination, source))
    throw_invalid_argument(operation, "source and destination overlap in part");
  if (shape.rank == 0) shape.dimensions[shape.rank++] = {1, shape.width, shape.width};
  choose_rows(shape);
  const StridedDimension& rows = shape.dimensions[0];
  const Dimensions others = shape.used().subspan(1);
  CopyResult result = CopyResult::nothing;
  for (size_t i = 0; i < count_of(others); ++i) {
    request.transfer = {static_cast<unsigned char*>(to) + offset_of(others, destination, i),
                        rows.to_stride,
                        source.begin + offset_of(others, source, i),
                        rows.from_stride,
                        shape.width,
                        rows.count};
    result = together(result, copy_request(stream, request, operation));
  }
  return result;
}

}  // namespace detail

namespace {
constexpr const char* operation = "copy in three dimensions";

/// @throws errc::invalid_argument unless rows and slices are disjoint
void require_pitches(const void* memory, const Pitches& pitches, const Extent& extent) {
  detail::require_rows(memory, pitches.row, extent.width, extent.height, operation);
  if (extent.depth > 1 && pitches.slice < pitches.row * (extent.height - 1) + extent.width)
    detail::throw_invalid_argument(operation, "the pitch of a slice is smaller than its rows");
}
}  // namespace

CopyResult copy_3d(StreamRef stream, void* to, Pitches to_pitches, const void* from,
                   Pitches from_pitches, Extent extent, const CopyOptions& options) {
  if (extent.width > 0 && extent.height > 0 && extent.depth > 0) {
    require_pitches(to, to_pitches, extent);
    require_pitches(from, from_pitches, extent);
  }
  std::array<detail::StridedDimension, 2> dimensions{
      {{extent.height, to_pitches.row, from_pitches.row},
       {extent.depth, to_pitches.slice, from_pitches.slice}}};
  return detail::copy_strided(stream, to, from, extent.width, dimensions, options, operation);
}

}  // namespace runnel::inline RUNNEL_ABI
