// SPDX-License-Identifier: Apache-2.0
/// What is printed of a run that failed.
#pragma once

#include "model.hpp"

#include <string>

namespace model {

/// The last operations of the run, with threads, orders, values and source lines; and how to repeat
/// it.
void print_failure(const Check& check, const std::string& replay);

}  // namespace model
