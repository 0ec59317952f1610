// SPDX-License-Identifier: Apache-2.0
// The backend of this module. Only module.cpp is compiled for each.
#pragma once

#include <string_view>

namespace binding {

/// "host", "cuda" or "hip".
extern const std::string_view backend;
[[nodiscard]] inline bool is_on_host() noexcept { return backend == "host"; }

}  // namespace binding
