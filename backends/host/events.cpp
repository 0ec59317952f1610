// SPDX-License-Identifier: Apache-2.0
#include "event.hpp"

#include "base/announce.hpp"
#include "base/sync.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::backend {

using host::catch_bad_alloc;

/// A node of a graph has no fixed time at which it runs.
constexpr status captured_event = host::status_of(errc::capture);

status event_create(native::event& event, EventKind kind) noexcept {
  return catch_bad_alloc([&] {
    event = new native::host_event{
        kind, kind.interprocess ? std::make_shared<const host::SharedMarks>() : nullptr};
    return ok;
  });
}

status event_destroy(native::event event) noexcept {
  delete event;
  return ok;
}

namespace {

/// Submits a task that completes a record for all processes.
void submit_shared(native::host_stream& stream,
                   const std::shared_ptr<const host::SharedMarks>& shared, host::Mark& mark) {
  mark.shared_number = shared->begin();
  mark.wait = {stream.queue, 0, sync::Token::make()};
  try {
    mark.wait.until = host::submit_in_order(
        stream, [shared, number = mark.shared_number, token = mark.wait.token] {
          shared->complete(number);
          token.happens_before();
        });
  } catch (const std::bad_alloc&) {
    shared->complete(mark.shared_number);  // otherwise a wait for this record would never end
    throw;
  }
}

/// Submits a task that waits for a record of another process.
status wait_for_shared(native::stream handle,
                       const std::shared_ptr<const host::SharedMarks>& shared,
                       std::uint64_t number) {
  native::host_stream& stream = host::resolve(handle);
  if (stream.is_captured()) [[unlikely]]
    if (const status s = host::break_on_outside_wait(stream); s != ok) return s;
  if (!shared->is_complete(number))
    host::submit_in_order(stream, [shared, number] {
      return host::wait_in_task([&] { return shared->is_complete(number); });
    });
  return ok;
}

}  // namespace

status event_record(native::event event, native::stream handle) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& stream = host::resolve(handle);
    host::Mark mark;
    if (stream.is_captured())
      if (const status s = host::capture_mark(stream, mark.captured); s != ok) return s;
    if (mark.captured) {
      // No time is taken: the mark is a node of a graph.
    } else if (event->shared != nullptr) {
      submit_shared(stream, event->shared, mark);
    } else if (event->kind.timed) {
      host::MarkTask task = event->make_task();
      mark.stamp = task.stamp;
      mark.wait = {stream.queue, 0, task.token};
      mark.wait.until = host::submit_in_order(stream, std::move(task));
    } else {
      mark.wait = host::end_of(stream);
    }
    event->replace(std::move(mark));
    return ok;
  });
}

status event_query(native::event event) noexcept {
  return catch_bad_alloc([&] {
    const host::Mark mark = event->read();
    if (mark.captured) return captured_event;
    if (const std::uint64_t number = event->newer_number(mark); number != 0)
      return event->shared->is_complete(number) ? ok : host::status_of(errc::not_ready);
    if (!mark.wait.is_over()) return host::status_of(errc::not_ready);
    mark.wait.token.happens_after();
    return ok;
  });
}

status event_synchronize(native::event event) noexcept {
  return catch_bad_alloc([&] {
    const host::Mark mark = event->read();
    if (mark.captured) return captured_event;
    if (const std::uint64_t number = event->newer_number(mark); number != 0)
      event->shared->wait_for(number);
    else
      mark.wait.block_caller(!event->kind.blocking_wait);
    return ok;
  });
}

status event_elapsed(float& milliseconds, native::event start, native::event stop) noexcept {
  return catch_bad_alloc([&] {
    const host::Mark from = start->read();
    const host::Mark to = stop->read();
    if (from.captured || to.captured) return captured_event;
    if (from.stamp == nullptr || to.stamp == nullptr) return host::invalid_argument;
    if (!from.wait.is_over() || !to.wait.is_over()) return host::status_of(errc::not_ready);
    milliseconds =
        std::chrono::duration<float, std::milli>{to.stamp->time - from.stamp->time}.count();
    return ok;
  });
}

status stream_wait_event(native::stream handle, native::event event) noexcept {
  return catch_bad_alloc([&] {
    const host::Mark mark = event->read();
    if (mark.captured) return host::wait_in_capture(host::resolve(handle), mark.captured);
    if (const std::uint64_t number = event->newer_number(mark); number != 0)
      return wait_for_shared(handle, event->shared, number);
    if (mark.wait.queue == nullptr) return ok;
    native::host_stream& stream = host::resolve(handle);
    if (stream.is_captured()) [[unlikely]]
      if (const status s = host::break_on_outside_wait(stream); s != ok) return s;
    if (!sync::finds_races && mark.wait.is_over()) return ok;
    stream.queue->wait_for_room();
    const host::OrderedSubmission in_order{stream};
    stream.queue->submit_wait(mark.wait);
    return ok;
  });
}

status export_event(IpcBytes& handle, native::event event) noexcept {
  if (event->shared == nullptr) return host::invalid_argument;
  event->shared->memory().write_handle(handle);
  return ok;
}

status open_event(native::event& event, const IpcBytes& handle) noexcept {
  return catch_bad_alloc([&] {
    host::SharedMemory memory;
    if (const status s = host::SharedMemory::open(memory, handle); s != ok) return s;
    if (memory.size() != host::SharedMarks::bytes()) return host::invalid_argument;
    event = new native::host_event{{.timed = false, .blocking_wait = false, .interprocess = true},
                                   std::make_shared<const host::SharedMarks>(std::move(memory))};
    return ok;
  });
}

}  // namespace runnel::inline RUNNEL_ABI::backend
