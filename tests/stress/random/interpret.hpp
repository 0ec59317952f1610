// SPDX-License-Identifier: Apache-2.0
/// Executes the calls of a program through the public API.
#pragma once

#include <sstream>
#include <string>

#include "lower.hpp"

namespace random_programs {

/// Ends the process and reports why the program has failed. Any thread may call it.
[[noreturn]] void fail(const std::string& why);
/// The same, from the parts of a sentence.
template <class... Parts>
[[noreturn]] void fail(const std::string& first, const Parts&... others) {
  std::ostringstream why;
  why << first;
  (why << ... << others);
  fail(why.str());
}

/// Executes the program. Returns when all of its objects are gone. Calls fail() for a wrong byte,
/// an unexpected exception, a wrong answer or an object that is left.
void interpret(const Program& program, const Calls& calls);

/// While it lives, the call of operator new with this number, counted from 0, throws on this
/// thread.
class AllocationFault {
 public:
  explicit AllocationFault(unsigned number) noexcept;
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
  ~AllocationFault();
};

}  // namespace random_programs
