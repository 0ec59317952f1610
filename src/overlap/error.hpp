// SPDX-License-Identifier: Apache-2.0
/// Throws OverlapError.
#pragma once

#include <runnel/overlap.hpp>

#include <cstddef>
#include <exception>

namespace runnel::inline RUNNEL_ABI::detail {

/// Throws an OverlapError with `cause` nested in it. `step`: the phase of the chunk for the error
/// text, such as "computing".
[[noreturn]] void throw_overlap_error(size_t chunk, const char* step,
                                      const std::exception_ptr& cause);

}  // namespace runnel::inline RUNNEL_ABI::detail
