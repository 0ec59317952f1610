// SPDX-License-Identifier: Apache-2.0
/// Copies between two memories of any number of dimensions.
#pragma once

#include <runnel/copy.hpp>

#include <cstddef>
#include <span>

namespace runnel::inline RUNNEL_ABI::detail {

inline constexpr std::size_t most_strided_dimensions = 16;

/// One dimension of both sides. Strides are in bytes.
struct StridedDimension {
  std::size_t count;
  std::size_t to_stride;
  std::size_t from_stride;
};

/// Copies rows of `width` bytes, of which there are the given dimensions, in any order; their order
/// is changed. Dimensions that lie end to end on both sides are copied as one. What has more than
/// rows then is a copy of the runtime for each index of the other dimensions, the longest of all
/// being the rows. Requires: no more than most_strided_dimensions.
/// @throws as copy_3d(); errc::invalid_argument also where the order of the dimensions differs
CopyResult copy_strided(StreamRef stream, void* to, const void* from, std::size_t width,
                        std::span<StridedDimension> dimensions, const CopyOptions& options,
                        const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
