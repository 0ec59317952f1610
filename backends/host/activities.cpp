// SPDX-License-Identifier: Apache-2.0
// The host backend has no profiling library: traces time its work with events.
#include "backend.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

bool collect_activities(ActivitySink, char*, std::size_t) noexcept { return false; }

void deliver_activities(bool) noexcept {}

bool activity_time(std::uint64_t&) noexcept { return false; }

bool activity_stream(native::stream, std::uint32_t&) noexcept { return false; }

}  // namespace runnel::inline RUNNEL_ABI::backend
