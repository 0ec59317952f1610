// SPDX-License-Identifier: Apache-2.0
/// Call stacks of submitted operations.
#pragma once

#include <runnel/config.hpp>

#include <cstdint>
#include <string>

namespace runnel::inline RUNNEL_ABI::checker {

/// Equal stacks have equal numbers.
using StackId = uint32_t;
inline constexpr StackId no_stack = ~StackId{0};

/// The calling thread's stack.
/// @throws std::bad_alloc
StackId capture_stack();
/// Formats a line for each function of the program, the innermost first, without the library's own.
/// Source lines need debug information and addr2line.
/// @throws std::bad_alloc
std::string text_of(StackId stack);

}  // namespace runnel::inline RUNNEL_ABI::checker
