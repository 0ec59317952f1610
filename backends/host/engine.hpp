// SPDX-License-Identifier: Apache-2.0
/// The host backend's engine: it runs the streams' task queues on threads, as many as there are queues with a task that can run.
#pragma once

#include "task_queue.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::host {

/// Priorities of the host backend.
inline constexpr int least_priority = 1;
inline constexpr int greatest_priority = -1;

/// Starts the engine's first threads, with which every queue is run sooner or later, even if no further thread can be created.
/// @throws std::bad_alloc if they cannot be created
void start_engine();
/// Makes a ready queue run: at once if a core is free or no running task makes progress, else when its turn comes.
/// Requires: start_engine() has succeeded.
void start(TaskQueuePtr queue) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::host
