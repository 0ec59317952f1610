// SPDX-License-Identifier: Apache-2.0
/// The devices' work, timed by the vendor's profiling library, for the trace: kernels, and work
/// that other libraries submit.
#pragma once

#include "observe/trace_file.hpp"

#include <runnel/hooks.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Starts the collection, unless RUNNEL_TRACE_CUPTI=0. Only the first call has an effect.
void start_activities() noexcept;

/// Learns the profiling library's number of the operation's stream. May call the runtime.
void note_stream(const HookEvent& event) noexcept;

/// Makes the profiling library deliver the complete work. `last`: also ends the collection. May
/// call the runtime; does not block.
void fetch_activities(bool last) noexcept;

/// Moves the delivered work to the trace: slices, and rows below those of the streams. Adds at most
/// as many slices as fit.
/// @throws std::bad_alloc
void move_activities(TraceContents& contents, size_t max_slices);

}  // namespace runnel::inline RUNNEL_ABI::detail
