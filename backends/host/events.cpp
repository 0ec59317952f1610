// SPDX-License-Identifier: Apache-2.0
#include "capture.hpp"

#include "base/announce.hpp"
#include "base/sync.hpp"

#include <chrono>
#include <memory>
#include <mutex>

namespace runnel::inline RUNNEL_ABI {

namespace host {

/// The time at which a timed event happened. Each record makes a new one, and the record's task writes it.
struct Stamp {
  sync::Clock::time_point time;
};

/// What was recorded.
struct Mark {
  Wait wait{};              // without a queue: nothing
  CapturedMark captured{};  // in place of the wait
  std::shared_ptr<const Stamp> stamp;
};

}  // namespace host

struct native::host_event {
  explicit host_event(backend::EventKind with) noexcept : kind{with} {}

  [[nodiscard]] host::Mark read() const {
    const std::lock_guard lock{mutex};
    return mark;
  }

  const backend::EventKind kind;
  mutable sync::Mutex mutex;  // two threads may record at once: one of the two marks stays, undivided
  host::Mark mark;
};

namespace backend {

using host::catch_bad_alloc;

/// A place in a graph says nothing about when the graph runs.
constexpr status captured_event = host::status_of(errc::capture);

status event_create(native::event& event, EventKind kind) noexcept {
  return catch_bad_alloc([&] {
    event = new native::host_event{kind};
    return ok;
  });
}

status event_destroy(native::event event) noexcept {
  delete event;
  return ok;
}

status event_record(native::event event, native::stream handle) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& stream = host::resolve(handle);
    host::Mark mark;
    if (stream.is_captured()) mark.captured = host::capture_mark(stream);
    if (mark.captured) {
      // There is no time to take: the mark is a place in a graph.
    } else if (event->kind.timed) {
      const auto stamp = std::make_shared<host::Stamp>();
      mark.wait = {stream.queue, 0, sync::Token::make()};
      mark.wait.until = host::submit_in_order(stream, [stamp, token = mark.wait.token] {
        stamp->time = sync::Clock::now();
        token.happens_before();
      });
      mark.stamp = stamp;
    } else {
      mark.wait = host::end_of(stream);
    }
    const std::lock_guard lock{event->mutex};
    std::swap(event->mark, mark);  // the old mark is destroyed outside the lock
    return ok;
  });
}

status event_query(native::event event) noexcept {
  return catch_bad_alloc([&] {
    const host::Mark mark = event->read();
    if (mark.captured) return captured_event;
    if (!mark.wait.is_over()) return host::status_of(errc::not_ready);
    mark.wait.token.happens_after();
    return ok;
  });
}

status event_synchronize(native::event event) noexcept {
  return catch_bad_alloc([&] {
    const host::Mark mark = event->read();
    if (mark.captured) return captured_event;
    mark.wait.hold_caller(!event->kind.blocking_wait);
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
    milliseconds = std::chrono::duration<float, std::milli>{to.stamp->time - from.stamp->time}.count();
    return ok;
  });
}

status stream_wait_event(native::stream handle, native::event event) noexcept {
  return catch_bad_alloc([&] {
    const host::Mark mark = event->read();
    if (mark.captured) return host::wait_in_capture(host::resolve(handle), mark.captured);
    if (mark.wait.queue == nullptr) return ok;
    native::host_stream& stream = host::resolve(handle);
    if (stream.is_captured()) [[unlikely]]
      if (const status s = host::refuse_outside_wait(stream); s != ok) return s;
    if (!sync::finds_races && mark.wait.is_over()) return ok;
    stream.queue->wait_for_room();
    const host::OrderedSubmission in_order{stream};
    stream.queue->submit_wait(mark.wait);
    return ok;
  });
}

}  // namespace backend
}  // namespace runnel::inline RUNNEL_ABI
