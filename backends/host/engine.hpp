// SPDX-License-Identifier: Apache-2.0
/// The engine runs the task queues of streams on threads. It runs at most as many queues at a time
/// as the machine has cores, and one more for each task that is blocked or takes longer than 10 ms.
/// A "core" here is a permit to run: no thread is bound to a processor.
#pragma once

#include "spin.hpp"
#include "task_queue.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::host {

/// Priorities of the host backend.
inline constexpr int least_priority = 1;
inline constexpr int greatest_priority = -1;

/// Prepares to run the queue. The first call starts the engine's first threads. They eventually run
/// each queue, even if no further thread can be created.
/// @throws std::bad_alloc if they cannot be created
void prepare(TaskQueue& queue);
/// Makes a ready queue run: at once if a core is free. Otherwise the next free worker runs it, or
/// the monitor provides a core. Requires: prepare() has succeeded.
void start(TaskQueuePtr queue) noexcept;
/// Declares that no more work will be submitted.
void close(TaskQueue& queue) noexcept;
/// Whether a queue waits for a thread and none can be created.
[[nodiscard]] bool is_short_of_threads() noexcept;
/// Blocks the thread of a task until `done()` returns true, which may need other tasks to run.
/// False if another queue needs the thread: the task must then return false, and runs again later.
template <class F>
[[nodiscard]] bool wait_in_task(F done) {
  return poll_until(done, is_short_of_threads);
}
/// Sets the name that debuggers and checkers may show.
void name(TaskQueue& queue, const char* text) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::host
