// SPDX-License-Identifier: Apache-2.0
/// Objects that a process has once, for headers whose own statics are one for each module that includes them: a module with hidden
/// symbols, or one that was opened with dlopen, has its own.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The process's object of that name, which the first call makes. It is never destroyed. Every caller of one name means one type with one
/// layout: a name says so by a number that changes with the layout. Requires: `make` does not call this.
[[nodiscard]] void* process_wide(const char* name, void* (*make)());

}  // namespace runnel::inline RUNNEL_ABI::detail
