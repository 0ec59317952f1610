// SPDX-License-Identifier: Apache-2.0
/// Copies between strided arrays with any number of dimensions.
#pragma once

#include <runnel/copy.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

inline constexpr std::size_t max_strided_dimensions = 16;

/// One dimension of both sides. Strides are in bytes.
struct StridedDimension {
  std::size_t count;
  std::size_t to_stride;
  std::size_t from_stride;
};

/// Copies a strided array whose elements have `width` bytes. The dimensions may be in any order;
/// the call sorts them. Dimensions that are contiguous on both sides are merged. Of the dimensions
/// that remain, the longest becomes the rows of a runtime copy, and there is one such copy for each
/// index of the others. Requires: at most max_strided_dimensions.
/// @throws as copy_3d(); errc::invalid_argument also if the two sides have their dimensions in
/// different orders
CopyResult copy_strided(StreamRef stream, void* to, const void* from, std::size_t width,
                        std::span<StridedDimension> dimensions, const CopyOptions& options,
                        const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
