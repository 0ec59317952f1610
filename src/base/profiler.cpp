// SPDX-License-Identifier: Apache-2.0
#include <runnel/profiler.hpp>

#include "backend.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

void push_profiler_range(const char* name) noexcept { backend::push_range(name); }
void pop_profiler_range() noexcept { backend::pop_range(); }

}  // namespace runnel::inline RUNNEL_ABI::detail
