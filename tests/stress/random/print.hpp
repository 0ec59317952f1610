// SPDX-License-Identifier: Apache-2.0
/// Writes a program as C++ that needs the public headers only.
#pragma once

#include <string>

#include "lower.hpp"

namespace random_programs {

[[nodiscard]] std::string print(const Program& program, const Calls& calls);

}  // namespace random_programs
