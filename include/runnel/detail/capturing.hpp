// SPDX-License-Identifier: Apache-2.0
/// Queries whether a stream is being captured, as a part of another operation.
#pragma once

#include <runnel/stream.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// As StreamRef::is_capturing(), but errors name `operation`. Requires: `operation` is a string
/// literal.
[[nodiscard]] bool is_capturing(StreamRef stream, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
