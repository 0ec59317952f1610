// SPDX-License-Identifier: Apache-2.0
/// Objects that exist once in a process. A static variable of a header does not: each module that
/// has hidden symbols, or that was opened with dlopen, has its own copy of it.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Returns the process's object with that name. The first call creates the object with `make`; it
/// is never destroyed. Requires: all callers that pass one name use one type with one layout (put a
/// number into the name and change it with the layout), and `make` does not call this function.
[[nodiscard]] void* process_wide(const char* name, void* (*make)());

}  // namespace runnel::inline RUNNEL_ABI::detail
