// SPDX-License-Identifier: Apache-2.0
/// Stands in for the backend and for the parts of the library that the checked sources call, but
/// that are not checked themselves.
#include "device.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/process.hpp"
#include "copy/user_pages.hpp"
#include "device/device_table.hpp"
#include "function/graph_functions.hpp"
#include "function/host_functions.hpp"
#include "memory/pinned_pages.hpp"
#include "memory/releaser.hpp"
#include "slot/reclaimer.hpp"
#include "slot/slots.hpp"

#include <cstring>
#include <utility>

using std::size_t, std::uint64_t;

namespace checks {

int failing_copy = 0;
constinit sync::Atomic<int> events_made{0};

int expect_all_pooled() {
  const int made = events_made.load(std::memory_order_relaxed);
  const auto pooled = runnel::detail::read_count(runnel::detail::counters.pooled_events);
  model::expect(pooled == static_cast<size_t>(made), "an event was lost, or came back twice");
  return made;
}

namespace {

constexpr backend::status not_ready = 1, failed = 2;
constinit sync::Atomic<int> copies_so_far{0};

void run_stream(native::host_stream& stream) {
  for (;;) {
    std::function<void()> command;
    {
      std::unique_lock lock{stream.mutex};
      stream.changed.wait(lock, [&] { return !stream.commands.empty(); });
      command = std::move(stream.commands.front());
      stream.commands.pop_front();
    }
    command();
    stream.completed.store(stream.completed.load(std::memory_order_relaxed) + 1,
                           std::memory_order_release);
    const std::lock_guard lock{stream.mutex};
    stream.changed.notify_all();
  }
}

sync::AtomicRef<uint32_t> value_at(uint32_t* place) { return sync::AtomicRef<uint32_t>{*place}; }

}  // namespace

void submit(native::stream stream, std::function<void()> command) {
  const std::lock_guard lock{stream->mutex};
  stream->commands.push_back(std::move(command));
  ++stream->submitted;
  stream->changed.notify_all();
}

void synchronize(native::stream stream) {
  std::unique_lock lock{stream->mutex};
  stream->changed.wait(
      lock, [&] { return stream->completed.load(std::memory_order_acquire) == stream->submitted; });
}

bool is_idle(native::stream stream) {
  const std::lock_guard lock{stream->mutex};
  return stream->completed.load(std::memory_order_acquire) == stream->submitted;
}

FreeSlots& free_slots() { return runnel::detail::never_destroyed<FreeSlots>(); }
AllSlots& all_slots() { return runnel::detail::never_destroyed<AllSlots>(); }

runnel::detail::Slot* reuse_slot(uint64_t id) {
  runnel::detail::Slot* slot = nullptr;
  {
    const std::lock_guard lock{free_slots().mutex};
    slot = free_slots().first;
    if (slot == nullptr) return nullptr;
    advance(*slot);
    if (!slot->timeline.is_idle()) return nullptr;
    free_slots().first = slot->next_free;
  }
  begin_stream(*slot, id);
  return slot;
}

runnel::detail::Slot& make_slot(uint64_t id) {
  auto& slot = lasting<runnel::detail::Slot>();
  all_slots().all[all_slots().count++] = &slot;
  begin_stream(slot, id);
  return slot;
}

void begin_stream(runnel::detail::Slot& slot, uint64_t id) {
  auto& stream = lasting<native::host_stream>();
  slot.handle = &stream;
  slot.id.store(id, std::memory_order_release);
  sync::Thread{[&stream] { run_stream(stream); }}.detach();
}

}  // namespace checks

namespace runnel::inline RUNNEL_ABI {

namespace backend {

errc classify(status) noexcept { return errc::unknown; }
void forget_error(status) noexcept {}
bool is_not_ready(status s) noexcept { return s == checks::not_ready; }
status exchange_capture_mode(CaptureMode&) noexcept { return ok; }
status get_device(int& device) noexcept { return device = 0, ok; }
status set_device(int) noexcept { return ok; }
native::stream default_stream() noexcept { return nullptr; }
bool forgets_host_functions() noexcept { return false; }
bool copies_pageable_asynchronously() noexcept { return false; }
bool can_query_beside_begin_of_capture() noexcept { return true; }
status stream_is_capturing(native::stream, bool& capturing) noexcept {
  return capturing = false, ok;
}
status stream_query(native::stream stream) noexcept {
  return checks::is_idle(stream) ? ok : checks::not_ready;
}
status stream_destroy(native::stream stream) noexcept { return stream->is_destroyed = true, ok; }

status event_create(native::event& event, EventKind) noexcept {
  checks::events_made.fetch_add(1, std::memory_order_relaxed);
  return event = new native::host_event, ok;
}
status event_destroy(native::event) noexcept { return ok; }
status event_record(native::event event, native::stream stream) noexcept {
  uint64_t number = 0;
  {
    if (stream->is_destroyed) model::fail("a destroyed stream is used");
    const std::lock_guard lock{stream->mutex};
    number = stream->submitted;
  }
  const std::lock_guard lock{event->mutex};
  event->stream = stream;
  event->number = number;
  return ok;
}
status stream_wait_event(native::stream stream, native::event event) noexcept {
  const std::lock_guard lock{event->mutex};
  if (event->stream == nullptr) return ok;
  checks::submit(stream, [awaited = event->stream, number = event->number] {
    while (awaited->completed.load(std::memory_order_acquire) < number) checks::sync::yield();
  });
  return ok;
}
status event_query(native::event event) noexcept {
  const std::lock_guard lock{event->mutex};
  return event->stream == nullptr ||
                 event->stream->completed.load(std::memory_order_acquire) >= event->number
             ? ok
             : checks::not_ready;
}

status launch_host_func(native::stream stream, void (*function)(void*), void* data) noexcept {
  return checks::submit(stream, [=] { function(data); }), ok;
}
status copy_async(void* to, const void* from, size_t bytes, native::stream stream) noexcept {
  if (checks::copies_so_far.fetch_add(1, std::memory_order_relaxed) + 1 == checks::failing_copy)
    return checks::failed;
  return checks::submit(stream, [=] { std::memcpy(to, from, bytes); }), ok;
}
status copy_batch_async(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                        native::stream stream) noexcept {
  for (size_t i = 0; i < count; ++i)
    if (const status s = copy_async(to[i], from[i], bytes[i], stream); s != ok) return s;
  return ok;
}
status copy_2d_async(void*, size_t, const void*, size_t, size_t, size_t, native::stream) noexcept {
  return checks::failed;
}
status stream_wait_value(native::stream stream, std::uint32_t* place,
                         std::uint32_t value) noexcept {
  checks::submit(stream, [=] {
    while (static_cast<std::int32_t>(checks::value_at(place).load(std::memory_order_acquire) -
                                     value) < 0)
      checks::sync::yield();
  });
  return ok;
}
status stream_write_value(native::stream stream, std::uint32_t* place,
                          std::uint32_t value) noexcept {
  return checks::submit(stream,
                        [=] { checks::value_at(place).store(value, std::memory_order_release); }),
         ok;
}

}  // namespace backend

namespace detail {

void deliver(Operation) noexcept {}

constinit Atomic<unsigned> observers{0};
constinit sync::Atomic<unsigned> slow_path_reasons{0};
thread_local constinit bool in_host_function = false;
constinit sync::Atomic<int> known_device_count{1};
constinit Counters counters{};
thread_local constinit ThreadCounts* own_counts = nullptr;
constinit sync::Atomic<bool> is_memory_untouchable{false};
ThreadCounts& counts_slowly() noexcept {
  static constinit ThreadCounts shared{};
  return shared;
}
thread_local constinit uint64_t host_function_label = 0;
uint64_t next_operation_number() noexcept { return 1; }

Release release_mode_slowly() noexcept { return Release::now; }
Release release_mode_before_wait() noexcept { return Release::now; }
[[gnu::weak]] void run_later(Deferred& object) noexcept { object.run(object); }  // reclaimer.cpp
[[gnu::weak]] void request_device_wait(int) noexcept {}
[[gnu::weak]] void run_after(DeferredWork& object) noexcept { object.run(object); }  // likewise
[[gnu::weak]] Reclaimer& reclaimer() noexcept { return never_destroyed<Reclaimer>(); }
[[gnu::weak]] bool Reclaimer::try_start() noexcept { return true; }
void watch_main_thread() {}
void release_on_thread(Deferred& object) noexcept { object.run(object); }
void discard_host_functions(int) noexcept {}
void abandon_capture(StreamKey) noexcept {}
void close_capture(uint64_t) noexcept {}
std::unique_lock<sync::Mutex> block_captures() noexcept { return {}; }
[[gnu::weak]] void advance(Slot& slot) noexcept {  // likewise
  slot.timeline.advance([](native::event event) { return backend::event_query(event); },
                        [](Deferred&, const EventRef&, backend::status) {});
}
std::exception_ptr finish_slot(Slot& slot) noexcept {
  const std::lock_guard lock{checks::free_slots().mutex};
  slot.next_free = std::exchange(checks::free_slots().first, &slot);
  ++checks::free_slots().count;
  return {};
}
std::vector<AwaitedTimeline> begin_device_wait(int) noexcept {
  std::vector<AwaitedTimeline> found;
  checks::AllSlots& slots = checks::all_slots();
  for (int i = 0; i < slots.count; ++i)
    if (Timeline& timeline = slots.all[i]->timeline; !timeline.is_idle())
      found.push_back({slots.all[i], timeline.begin_wait()});
  return found;
}
bool has_stream_values(int) { return true; }
bool look_usable(Range, PageUse, Range&) noexcept { return true; }
bool populate_pages(Range, PageUse) noexcept { return true; }
backend::status free_pinned_pages(void* block) noexcept {
  return ::operator delete(block), backend::ok;
}
void keep_failure(StreamSlot*, uint64_t, Failure) noexcept {
  model::fail("a copy found no memory");
}
void throw_error(errc, const char*, const char* reason, int, const char*) { model::fail(reason); }
void throw_error(errc, const char*, const char* reason) { model::fail(reason); }
void throw_status(backend::status s, const char*) { throw s; }
const void* this_thread_id() noexcept {
  static thread_local const void* id = nullptr;  // its own address is the same in every fiber
  if (id == nullptr) id = new char;
  return id;
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
