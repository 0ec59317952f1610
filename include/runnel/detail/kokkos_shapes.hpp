// SPDX-License-Identifier: Apache-2.0
/// Copies between Kokkos views of any strides.
#pragma once

#include <runnel/detail/strided.hpp>

#include <Kokkos_Core.hpp>

#include <string_view>

namespace runnel::inline RUNNEL_ABI::kokkos::detail {

/// A view's label and extents. Long labels are truncated, so that both views fit into the text of
/// an error.
template <class View>
[[nodiscard]] std::string in_words(const View& view) {
  constexpr std::size_t longest = 60;
  const std::string label = view.label();
  std::string text = label.empty()
                         ? "unnamed memory"
                         : "'" + label.substr(0, longest) + (label.size() > longest ? "...'" : "'");
  text += " (";
  for (unsigned i = 0; i < View::rank(); ++i)
    text += (i == 0 ? "" : " x ") + std::to_string(view.extent(i));
  return text + ")";
}

template <class Dst, class Src>
[[noreturn]] void refuse_views(const Dst& dst, const Src& src, const char* reason) {
  runnel::detail::throw_invalid_argument(
      "copy a Kokkos view", (in_words(dst) + " from " + in_words(src) + ": " + reason).c_str());
}

template <class Dst, class Src>
CopyResult copy_views(StreamRef stream, const Dst& dst, const Src& src,
                      const CopyOptions& options) {
  constexpr std::size_t size = sizeof(typename Dst::value_type);
  std::array<runnel::detail::StridedDimension, Dst::rank()> dimensions;
  for (unsigned i = 0; i < Dst::rank(); ++i) {
    if (dst.extent(i) != src.extent(i)) refuse_views(dst, src, "the extents differ");
    dimensions[i] = {dst.extent(i), dst.stride(i) * size, src.stride(i) * size};
  }
  try {
    return runnel::detail::copy_strided(stream, dst.data(), src.data(), size, dimensions, options,
                                        "copy");
  } catch (const Error& error) {
    if (error.code() != errc::invalid_argument) throw;
    const std::string_view text{error.what()};
    // Without "runnel: ", which refuse_views() prepends again.
    refuse_views(dst, src, text.substr(text.find(": ") + 2).data());
  }
}

}  // namespace runnel::inline RUNNEL_ABI::kokkos::detail
