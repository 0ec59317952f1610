// SPDX-License-Identifier: Apache-2.0
/// The common shape of two Kokkos views in memory, for copies: one run of bytes, rows of bytes, or planes of rows.
#pragma once

#include <runnel/copy.hpp>
#include <runnel/error.hpp>
#include <runnel/stream.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace runnel::inline RUNNEL_ABI::kokkos::detail {

/// One dimension of both views. Strides are in elements.
struct Dimension {
  std::size_t count;
  std::size_t to_stride;
  std::size_t from_stride;
};

/// A view's label and extents. An error's text is short, so long labels are cut: both views have to fit in.
template <class View>
[[nodiscard]] std::string in_words(const View& view) {
  constexpr std::size_t longest = 60;
  const std::string label = view.label();
  std::string text = label.empty() ? "unnamed memory" : "'" + label.substr(0, longest) + (label.size() > longest ? "...'" : "'");
  text += " (";
  for (unsigned i = 0; i < View::rank(); ++i) text += (i == 0 ? "" : " x ") + std::to_string(view.extent(i));
  return text + ")";
}

/// The dimensions of two views, the innermost first; neighbours that are contiguous in both views are merged.
struct Shape {
  std::array<Dimension, 8> dimensions{};
  std::size_t rank = 0;
};
template <class Dst, class Src>
[[nodiscard]] Shape shape_of(const Dst& dst, const Src& src) {
  Shape shape;
  for (unsigned i = 0; i < Dst::rank(); ++i) {
    if (dst.extent(i) == 1) continue;
    std::size_t place = shape.rank++;
    for (; place > 0 && shape.dimensions[place - 1].to_stride > dst.stride(i); --place)
      shape.dimensions[place] = shape.dimensions[place - 1];
    shape.dimensions[place] = {dst.extent(i), dst.stride(i), src.stride(i)};
  }
  std::size_t last = 0;
  for (std::size_t i = 1; i < shape.rank; ++i) {
    Dimension& inner = shape.dimensions[last];
    const Dimension& outer = shape.dimensions[i];
    if (outer.to_stride == inner.count * inner.to_stride && outer.from_stride == inner.count * inner.from_stride)
      inner.count *= outer.count;
    else
      shape.dimensions[++last] = outer;
  }
  if (shape.rank > 0) shape.rank = last + 1;
  return shape;
}

/// Copies rows of `width` bytes, of which there are the given dimensions. `size`: of an element, in which strides are counted.
inline CopyResult copy_rows(StreamRef stream, void* to, const void* from, std::size_t width, std::size_t size, const Dimension* dimensions,
                            std::size_t count, Pageable policy) {
  if (count == 0) return copy_bytes(stream, to, from, width, policy);
  const Dimension& rows = dimensions[0];
  const std::size_t to_row = rows.to_stride * size, from_row = rows.from_stride * size;
  if (count == 1) return copy_2d(stream, to, to_row, from, from_row, width, rows.count, policy);
  const Dimension& slices = dimensions[1];
  return copy_3d(stream, to, {to_row, slices.to_stride * size}, from, {from_row, slices.from_stride * size},
                 {width, rows.count, slices.count}, policy);
}

/// Whether the dimensions are in one order on both sides: none lies within the span of an inner one.
[[nodiscard]] inline bool is_nested(const Shape& shape) noexcept {
  for (std::size_t i = 1; i < shape.rank; ++i) {
    const Dimension &inner = shape.dimensions[i - 1], &outer = shape.dimensions[i];
    if (outer.to_stride < inner.count * inner.to_stride || outer.from_stride < inner.count * inner.from_stride) return false;
  }
  return true;
}

template <class Dst, class Src>
[[noreturn]] void refuse_views(const Dst& dst, const Src& src, const char* reason) {
  runnel::detail::throw_invalid_argument("copy a Kokkos view", (in_words(dst) + " from " + in_words(src) + ": " + reason).c_str());
}

template <class Dst, class Src>
CopyResult copy_views(StreamRef stream, const Dst& dst, const Src& src, Pageable policy) {
  constexpr std::size_t size = sizeof(typename Dst::value_type);
  for (unsigned i = 0; i < Dst::rank(); ++i)
    if (dst.extent(i) != src.extent(i)) refuse_views(dst, src, "the extents differ");
  if (dst.size() == 0) return CopyResult::nothing;
  const Shape shape = shape_of(dst, src);
  const Dimension& inner = shape.dimensions[0];
  const std::size_t runs = shape.rank > 0 && inner.to_stride == 1 && inner.from_stride == 1 ? 1 : 0;  // dimensions within a row
  if (!is_nested(shape)) refuse_views(dst, src, "their layouts differ. Copy between views of one layout, and transpose with a kernel");
  if (shape.rank > runs + 2) refuse_views(dst, src, "together they have more than rows and planes of rows. Copy them in parts");
  try {
    return copy_rows(stream, dst.data(), src.data(), (runs == 1 ? inner.count : 1) * size, size, shape.dimensions.data() + runs,
                     shape.rank - runs, policy);
  } catch (const Error& error) {
    if (error.code() != errc::invalid_argument) throw;
    const std::string_view text{error.what()};
    refuse_views(dst, src, text.substr(text.find(": ") + 2).data());  // without "runnel: ", which the new text begins with
  }
}

}  // namespace runnel::inline RUNNEL_ABI::kokkos::detail
