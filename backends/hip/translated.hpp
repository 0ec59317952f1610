// SPDX-License-Identifier: Apache-2.0
/// Converts the errors of CUDA's functions, for HIP's NVIDIA platform where its header has no
/// wrapper.
#pragma once

#include <hip/hip_runtime_api.h>
#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::rt {

/// Calls a function of CUDA, and returns HIP's number of its error.
template <auto function>
inline constexpr auto translated =
    [](auto... arguments) noexcept { return hipCUDAErrorTohipError(function(arguments...)); };

}  // namespace runnel::inline RUNNEL_ABI::rt
