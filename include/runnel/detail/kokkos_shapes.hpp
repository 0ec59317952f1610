// SPDX-License-Identifier: Apache-2.0
/// The common shape of two Kokkos views in memory, for copies: one run of bytes, or rows of bytes.
#pragma once

#include <runnel/copy.hpp>
#include <runnel/stream.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <string>

namespace runnel::inline RUNNEL_ABI::kokkos::detail {

/// One dimension of both views. Strides are in elements.
struct Dimension {
  std::size_t count;
  std::size_t to_stride;
  std::size_t from_stride;
};

template <class View>
[[nodiscard]] std::string in_words(const View& view) {
  std::string text = "'" + view.label() + "' (";
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

template <class Dst, class Src>
CopyResult copy_views(StreamRef stream, const Dst& dst, const Src& src, Pageable policy) {
  constexpr const char* operation = "copy a Kokkos view";
  constexpr std::size_t size = sizeof(typename Dst::value_type);
  for (unsigned i = 0; i < Dst::rank(); ++i)
    if (dst.extent(i) != src.extent(i))
      runnel::detail::throw_invalid_argument(operation, ("the extents differ: " + in_words(dst) + " from " + in_words(src)).c_str());
  if (dst.size() == 0) return CopyResult::nothing;
  const Shape shape = shape_of(dst, src);
  const Dimension &inner = shape.dimensions[0], &outer = shape.dimensions[1];
  const bool runs = shape.rank == 0 || (inner.to_stride == 1 && inner.from_stride == 1);
  if (shape.rank <= 1 && runs) return copy_bytes(stream, dst.data(), src.data(), (shape.rank == 0 ? 1 : inner.count) * size, policy);
  if (shape.rank == 1)  // single elements with a stride
    return copy_2d(stream, dst.data(), inner.to_stride * size, src.data(), inner.from_stride * size, size, inner.count, policy);
  if (shape.rank == 2 && runs)
    return copy_2d(stream, dst.data(), outer.to_stride * size, src.data(), outer.from_stride * size, inner.count * size, outer.count,
                   policy);
  runnel::detail::throw_invalid_argument(
      operation, (in_words(dst) + " from " + in_words(src) +
                  ": together they are no rows of contiguous elements with one stride. Copy between views of one layout, and transpose or "
                  "gather with a kernel")
                     .c_str());
}

}  // namespace runnel::inline RUNNEL_ABI::kokkos::detail
