// SPDX-License-Identifier: Apache-2.0
/// The devices' work as the vendor's profiling library has timed it, for the trace: kernels, and
/// work that other libraries submit.
#pragma once

#include "observe/trace_file.hpp"

#include <runnel/hooks.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Asks the profiling library for all work from now on, unless RUNNEL_TRACE_CUPTI=0. Only the first
/// call does something.
void start_activities() noexcept;

/// Learns how the profiling library numbers the operation's stream. May call the runtime.
void note_stream(const HookEvent& event) noexcept;

/// Has the work delivered that is complete. `last`: also ends the collection. May call the runtime;
/// it waits for no work.
void fetch_activities(bool last) noexcept;

/// Moves what was delivered to the trace: slices, and rows beneath those of the streams. It takes
/// at most as many slices as fit. @throws std::bad_alloc
void move_activities(TraceContents& contents, std::size_t most_slices);

}  // namespace runnel::inline RUNNEL_ABI::detail
