// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_copies
/// Copies between `mdspan`s: the standard library's (C++23), the reference implementation's,
/// Kokkos' or CCCL's. Any type with the same members is accepted.
#pragma once

#include <runnel/detail/strided.hpp>

namespace runnel::inline RUNNEL_ABI {

namespace detail {

/// A view of elements at regular strides, in any number of dimensions, whose accessor is a pointer.
template <class M>
concept Mdspan = requires(const M& view) {
  typename M::element_type;
  typename M::layout_type;
  { M::rank() } -> std::convertible_to<std::size_t>;
  { view.extent(0) } -> std::convertible_to<std::size_t>;
  { view.stride(0) } -> std::convertible_to<std::size_t>;
  { view.is_strided() } -> std::convertible_to<bool>;
  { view.data_handle() } -> std::convertible_to<typename M::element_type*>;
};
template <class From, class To>
concept MdspanCopiedTo =
    Mdspan<To> && Mdspan<From> && To::rank() == From::rank() &&
    !std::is_const_v<typename To::element_type> &&
    std::is_same_v<typename To::element_type, std::remove_const_t<typename From::element_type>> &&
    std::is_trivially_copyable_v<typename To::element_type>;

template <class M>
[[nodiscard]] std::string extents_of(const M& view) {
  std::string text;
  for (std::size_t i = 0; i < M::rank(); ++i)
    text += (i == 0 ? "" : " x ") + std::to_string(view.extent(i));
  return text;
}

template <class To, class From>
CopyResult copy_mdspan(StreamRef stream, const To& to, const From& from,
                       const CopyOptions& options) {
  constexpr const char* operation = "copy an mdspan";
  constexpr std::size_t size = sizeof(typename To::element_type);
  static_assert(To::rank() <= max_strided_dimensions,
                "an mdspan of so many dimensions is not copied");
  if (!to.is_strided() || !from.is_strided())
    throw_invalid_argument(operation,
                           "a layout has no strides: copy its memory as it is, with copy_bytes()");
  std::array<StridedDimension, To::rank()> dimensions;
  for (std::size_t i = 0; i < To::rank(); ++i) {
    if (static_cast<std::size_t>(to.extent(i)) != static_cast<std::size_t>(from.extent(i)))
      throw_invalid_argument(
          operation,
          ("the extents differ: " + extents_of(to) + " from " + extents_of(from)).c_str());
    dimensions[i] = {static_cast<std::size_t>(to.extent(i)),
                     byte_size(static_cast<std::size_t>(to.stride(i)), size, operation),
                     byte_size(static_cast<std::size_t>(from.stride(i)), size, operation)};
  }
  return copy_strided(stream, to.data_handle(), from.data_handle(), size, dimensions, options,
                      operation);
}

}  // namespace detail

/// Copies all elements of `from` to `to`, which has the same extents; the memory may be of any
/// kind. Strides may differ, and gaps are not written. Both sides must have the same order of
/// dimensions by stride: this copy does not transpose. Dimensions that are contiguous on both sides
/// are merged. One runtime copy takes rows at one pitch. If other dimensions remain, there is one
/// runtime copy for each of their indices, so that a few large rows are fast and many short ones
/// are slow. If one of several runtime copies fails, the earlier ones stay enqueued. The result
/// holds for all of them. Both sides must stay alive, and the source unchanged, until the stream
/// has completed the copy.
/// @throws as copy_bytes(); errc::invalid_argument also for extents that differ, and for layouts
/// without strides or in another order
template <class To, detail::MdspanCopiedTo<To> From, detail::CopyPolicy O = CopyOptions>
CopyResult copy(StreamRef stream, const To& to, const From& from, const O& options = {}) {
  return detail::copy_mdspan(stream, to, from, detail::options_of(options));
}
/// On the current stream.
template <class To, detail::MdspanCopiedTo<To> From>
CopyResult copy(const To& to, const From& from) {
  return detail::copy_mdspan(current_stream(), to, from, CopyOptions{});
}

}  // namespace runnel::inline RUNNEL_ABI
