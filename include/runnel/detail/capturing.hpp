// SPDX-License-Identifier: Apache-2.0
/// Whether a stream is being captured, asked as a part of another operation.
#pragma once

#include <runnel/stream.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// As StreamRef::is_capturing(); errors name the operation. Requires: `operation` is a string
/// literal.
[[nodiscard]] bool is_capturing(StreamRef stream, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
