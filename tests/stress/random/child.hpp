// SPDX-License-Identifier: Apache-2.0
/// Programs run in child processes, so that a crash or a hang of one is found, named and does not
/// end the others.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "program.hpp"

namespace random_programs {

/// How a child has ended.
struct Ended {
  bool well = false;
  std::string why;      ///< if not well: wrong bytes, an exception, a signal, or a hang
  uint64_t number = 0;  ///< of the program that was running
};

/// Runs the programs first, first + 1, ... before `end` in a child process, as many as it can. If a
/// program takes longer than `patience`, the child is killed.
Ended run_in_child(uint64_t first, uint64_t end, std::chrono::seconds patience,
                   const std::function<void(uint64_t number)>& run);

}  // namespace random_programs
