// SPDX-License-Identifier: Apache-2.0
/// The host backend's engine runs the streams' task queues on threads. At most as many queues run
/// at a time as the machine has cores, and one more for each task that is blocked or takes longer
/// than 10 ms. A "core" here is a permit to run: no thread is bound to a processor.
#pragma once

#include "spin.hpp"
#include "task_queue.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::host {

/// Priorities of the host backend.
inline constexpr int least_priority = 1;
inline constexpr int greatest_priority = -1;

/// Prepares to run the queue. The first call starts the engine's first threads, with which every
/// queue is run sooner or later, even if no further thread can be created. @throws std::bad_alloc
/// if they cannot be created
void prepare(TaskQueue& queue);
/// Makes a ready queue run: at once if a core is free. Else the next free worker runs it, or the
/// monitor finds it a core. Requires: prepare() has succeeded.
void start(TaskQueuePtr queue) noexcept;
/// The queue's user submits no more work.
void close(TaskQueue& queue) noexcept;
/// Whether a queue waits for a thread, and no thread can be created for it.
[[nodiscard]] bool is_short_of_threads() noexcept;
/// The wait of a task for something that other tasks may have to bring about: holds the thread
/// until `done()`. False if another queue needs the thread: then the task must answer false, and is
/// run again later.
template <class F>
[[nodiscard]] bool wait_in_task(F done) {
  return poll_until(done, is_short_of_threads);
}
/// Debuggers and checkers may show the name.
void name(TaskQueue& queue, const char* text) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::host
