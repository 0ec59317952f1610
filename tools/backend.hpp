// SPDX-License-Identifier: Apache-2.0
/// The backend that the command was built for.
#pragma once

#include <runnel/config.hpp>

#include <string_view>

namespace tool {

/// On the host backend the device's memory is the host's memory, and kernels are host functions.
inline constexpr bool host_backend = std::string_view{RUNNEL_BACKEND} == "host";

}  // namespace tool
