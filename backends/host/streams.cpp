// SPDX-License-Identifier: Apache-2.0
#include "capture.hpp"
#include "spin.hpp"

#include "base/announce.hpp"
#include "base/sync.hpp"
#include "base/thread_end.hpp"

#include <unistd.h>

#include <array>
#include <memory>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

native::host_stream::host_stream(int on_device, int priority, bool is_blocking,
                                 bool default_of_its_device)
    : queue{std::make_shared<host::TaskQueue>(priority)},
      device{on_device},
      blocking{is_blocking},
      is_default{default_of_its_device} {
  host::prepare(*queue);
  host::HostDevice& owner = host::device_at(device);
  const std::lock_guard lock{owner.mutex};
  owner.streams.insert(this);
}

namespace host {
namespace {

/// Its address is the handle of the calling thread's default stream. It is never dereferenced.
constinit char per_thread_mark = 0;

[[nodiscard]] native::stream per_thread_handle() noexcept {
  return reinterpret_cast<native::stream>(&per_thread_mark);
}

/// Not std::call_once: under ThreadSanitizer that hangs after the stream's constructor has thrown.
native::host_stream& default_of(int ordinal) {
  sync::Atomic<native::host_stream*>& pointer = device_at(ordinal).default_stream;
  if (native::host_stream* const stream = pointer.load(std::memory_order_acquire)) [[likely]]
    return *stream;
  static constinit sync::Mutex making;
  const std::lock_guard lock{making};
  if (pointer.load(std::memory_order_relaxed) == nullptr)
    pointer.store(new native::host_stream{ordinal, 0, true, true}, std::memory_order_release);
  return *pointer.load(std::memory_order_relaxed);
}

/// The calling thread's default streams, by device.
struct ThreadStreams {
  std::array<native::host_stream*, detail::max_devices> streams{};
  const pid_t process = getpid();
};
/// Created at first use, also while the thread is ending: a user's thread_local object may use its
/// stream in its destructor.
thread_local constinit ThreadStreams* thread_streams = nullptr;

void end_thread_streams(void*) noexcept {
  const std::unique_ptr<ThreadStreams> ended{std::exchange(thread_streams, nullptr)};
  // In a forked child, a thread that does not exist here may own the lock.
  if (ended->process != getpid()) return;
  for (native::host_stream* const stream : ended->streams)
    if (stream != nullptr) destroy(stream);
}

native::host_stream& per_thread_of(int ordinal) {
  if (thread_streams == nullptr) {
    thread_streams = new ThreadStreams;
    detail::at_thread_end(end_thread_streams, nullptr);
  }
  native::host_stream*& stream = thread_streams->streams[static_cast<std::size_t>(ordinal)];
  if (stream == nullptr) stream = new native::host_stream{ordinal, 0, true};
  return *stream;
}

/// Deletes the destroyed streams whose work is complete. Requires: the device's lock is held.
void delete_finished(HostDevice& device) noexcept {
  std::erase_if(device.leaving, [](const native::host_stream* stream) {
    if (!stream->queue->is_idle()) return false;
    delete stream;
    return true;
  });
}

/// Makes the default stream wait for the present work of the blocking streams, including destroyed
/// ones. Requires: the device's lock is held.
void join_blocking(HostDevice& device, native::host_stream& to) {
  device.for_each_stream([&](native::host_stream& other) {
    if (!other.blocking || other.joined == other.queue->submitted()) return;
    const Wait end = TaskQueue::end_of(other.queue);
    to.queue->submit_wait(end);
    other.joined = end.until;
  });
}

/// Makes a blocking stream wait for the present work of the default stream. Requires: the device's
/// lock is held.
void join_default(const native::host_stream& default_stream, native::host_stream& to) {
  if (to.awaited_default == default_stream.queue->submitted()) return;
  const Wait end = TaskQueue::end_of(default_stream.queue);
  to.queue->submit_wait(end);
  to.awaited_default = end.until;
}

}  // namespace

native::host_stream& resolve(native::stream handle) {
  if (handle == nullptr) return default_of(current_device());
  if (handle == per_thread_handle()) return per_thread_of(current_device());
  return *handle;
}

bool is_living(native::stream handle) {
  if (handle == nullptr || handle == per_thread_handle()) return true;
  for (int ordinal = 0; ordinal < visible_devices(); ++ordinal) {
    HostDevice& device = device_at(ordinal);
    const std::lock_guard lock{device.mutex};
    if (device.streams.count(handle) != 0) return true;
  }
  return false;
}

namespace {

/// For find_races: declares the order of the ended stream's work before later work of the device,
/// as the runtime guarantees it. Requires: the device's lock is held.
void announce_end(HostDevice& device, native::host_stream& stream) noexcept try {
  native::host_stream* const default_stream = device.default_stream.load(std::memory_order_acquire);
  stream.queue->submit([&device] { sync::happens_before(&device); });
  if (stream.blocking && default_stream != nullptr)
    default_stream->queue->submit_wait(TaskQueue::end_of(stream.queue));
} catch (const std::bad_alloc&) {  // Then the order is not declared.
}

}  // namespace

void destroy(native::host_stream* stream) noexcept {
  leave_capture(*stream);
  HostDevice& device = device_at(stream->device);
  const std::lock_guard lock{device.mutex};
  if (sync::finds_races) announce_end(device, *stream);
  stream->queue->close();
  device.leaving.insert(device.streams.extract(stream));
  delete_finished(device);
}

OrderedSubmission::OrderedSubmission(native::host_stream& stream) {
  if (!stream.blocking) return;
  HostDevice& device = device_at(stream.device);
  native::host_stream& default_stream = default_of(stream.device);
  lock_ = std::unique_lock{device.mutex};
  if (stream.is_default)
    join_blocking(device, stream);
  else
    join_default(default_stream, stream);
}

/// Does not wait for room in the queue, since the caller may hold a lock. So the queue may exceed
/// its limit by a few tasks: the waits for the other streams.
Wait end_of(native::host_stream& stream) {
  if (!stream.blocking) return TaskQueue::end_of(stream.queue);
  const OrderedSubmission in_order{stream};
  return TaskQueue::end_of(stream.queue);
}

bool has_finished(native::host_stream& stream) {
  if (!stream.queue->is_idle()) return false;
  stream.queue->order_after_completed();
  if (!stream.is_default) return true;
  HostDevice& device = device_at(stream.device);
  const std::lock_guard lock{device.mutex};
  if (device.has_stream([](const native::host_stream* other) {
        return other->blocking && !other->queue->is_idle();
      }))
    return false;
  if constexpr (sync::finds_races)
    device.for_each_stream([](const native::host_stream& other) {
      if (other.blocking) other.queue->order_after_completed();
    });
  return true;
}

}  // namespace host

namespace backend {

using host::catch_bad_alloc;

native::stream default_stream() noexcept { return nullptr; }
native::stream per_thread_default_stream() noexcept { return host::per_thread_handle(); }

status stream_create(native::stream& stream, bool blocking, int priority) noexcept {
  return catch_bad_alloc([&] {
    stream = new native::host_stream{host::current_device(), priority, blocking};
    return ok;
  });
}

// Streams share the machine's processors, and the engine chooses the thread of each task.
status device_divide(int, const int*, std::size_t, int*, Part*) noexcept {
  return host::status_of(errc::not_supported);
}
status stream_create_in(native::stream&, Part, int) noexcept {
  return host::status_of(errc::not_supported);
}

status stream_destroy(native::stream stream) noexcept {
  host::destroy(stream);
  return ok;
}

status stream_query(native::stream stream) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& queried = host::resolve(stream);
    if (queried.is_captured()) return host::status_of(errc::capture);
    return host::has_finished(queried) ? ok : host::status_of(errc::not_ready);
  });
}

status stream_synchronize(native::stream handle) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& stream = host::resolve(handle);
    if (stream.is_captured()) return host::status_of(errc::capture);
    // For a blocking stream only its own work counts, as in a query. Another thread may destroy the
    // stream meanwhile.
    const host::Wait end =
        stream.is_default ? host::end_of(stream) : host::TaskQueue::end_of(stream.queue);
    end.block_caller(true);
    return ok;
  });
}

status stream_priority(native::stream stream, int& priority) noexcept {
  return catch_bad_alloc([&] {
    priority = host::resolve(stream).queue->priority();
    return ok;
  });
}

status stream_is_blocking(native::stream stream, bool& blocking) noexcept {
  return catch_bad_alloc([&] {
    blocking = host::resolve(stream).blocking;
    return ok;
  });
}

// The first call for a handle that the user passes, so the handle may be invalid.
status stream_device(native::stream stream, int& device) noexcept {
  return catch_bad_alloc([&] {
    if (!host::is_living(stream)) return host::status_of(errc::invalid_handle);
    device = host::resolve(stream).device;
    return ok;
  });
}

status stream_is_capturing(native::stream stream, bool& capturing) noexcept {
  return catch_bad_alloc([&] {
    capturing = host::resolve(stream).is_captured();
    return ok;
  });
}
// Captures forbid no call here.
status exchange_capture_mode(CaptureMode&) noexcept { return ok; }

status stream_capture_number(native::stream stream, std::uint64_t& number) noexcept {
  return catch_bad_alloc([&] {
    number = host::capture_number(host::resolve(stream));
    return ok;
  });
}
status stream_begin_capture(native::stream stream, CaptureMode mode) noexcept {
  return catch_bad_alloc([&] { return host::begin_capture(host::resolve(stream), mode); });
}
status stream_end_capture(native::stream stream, native::graph& graph) noexcept {
  graph = nullptr;
  return catch_bad_alloc([&] {
    std::shared_ptr<const host::GraphWork> work;
    const status s = host::end_capture(host::resolve(stream), work);
    if (s == ok) graph = new native::host_graph{std::move(work)};
    return s;
  });
}

status stream_wait_value(native::stream stream, std::uint32_t* place,
                         std::uint32_t value) noexcept {
  const auto wait = [=] {
    const bool is_over = host::wait_in_task([=] {
      const std::uint32_t found =
          sync::AtomicRef<std::uint32_t>{*place}.load(std::memory_order_acquire);
      return static_cast<std::int32_t>(found - value) >= 0;
    });
    if (is_over) sync::happens_after(place);
    return is_over;
  };
  return host::catch_bad_alloc([&] {
    host::submit_in_order(host::resolve(stream), wait);
    return ok;
  });
}
status stream_write_value(native::stream stream, std::uint32_t* place,
                          std::uint32_t value) noexcept {
  return host::enqueue(stream, NodeKind::other, [=] {
    sync::happens_before(place);
    sync::AtomicRef<std::uint32_t>{*place}.store(value, std::memory_order_release);
  });
}

void name_stream(native::stream stream, const char* text) noexcept {
  host::name(*stream->queue, text);
}
void push_range(const char*) noexcept {}
void pop_range() noexcept {}

status launch_host_func(native::stream stream, void (*function)(void*), void* data) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& to = host::resolve(stream);
    const auto run = [=] { function(data); };
    if (to.is_captured()) [[unlikely]]
      if (const auto answer =
              host::capture_node(to, {NodeKind::host_function, run, nullptr, function, data}))
        return *answer;
    host::submit_in_order(to, run);
    return ok;
  });
}

bool forgets_host_functions() noexcept { return false; }
bool can_query_beside_begin_of_capture() noexcept { return true; }

}  // namespace backend
}  // namespace runnel::inline RUNNEL_ABI
