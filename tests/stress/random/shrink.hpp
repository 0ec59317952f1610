// SPDX-License-Identifier: Apache-2.0
/// Removes what a failing program does not need to fail.
#pragma once

#include <functional>

#include "program.hpp"

namespace random_programs {

/// The smallest program that is found for which `fails` is still true, by delta debugging (Zeller
/// and Hildebrandt, 2002): groups of operations are removed, then single ones, then threads and
/// visits. `fails` may answer by trying several times. Requires: the program fails.
Program shrink(Program program, const std::function<bool(const Program&)>& fails);

}  // namespace random_programs
