// SPDX-License-Identifier: Apache-2.0
/// A program as text, to be read.
#pragma once

#include <string>

#include "lower.hpp"

namespace random_programs {

/// The streams and buffers, then the calls in order: one line each. A line names the numbers that
/// the call has (lower.hpp says what they mean).
std::string to_text(const Program& program, const Calls& calls);

}  // namespace random_programs
