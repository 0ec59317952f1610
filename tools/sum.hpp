// SPDX-License-Identifier: Apache-2.0
/// `runnel sum` adds up the numbers of binary files. All processes that were started share the
/// work.
#pragma once

#include "processes.hpp"
#include "reading.hpp"

namespace tool {

/// @throws Failure, or an exception of runnel
void sum(const ReadingCommand& command, Processes& processes);

}  // namespace tool
