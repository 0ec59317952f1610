// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/access.hpp>
#include <runnel/detail/capturing.hpp>
#include <runnel/foreign_stream.hpp>
#include <runnel/stream.hpp>

#include "base/catch_errors_into.hpp"
#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/not_copied.hpp"
#include "base/operation.hpp"
#include "base/process.hpp"
#include "base/try_flag.hpp"
#include "device/device_table.hpp"
#include "device/partition.hpp"
#include "function/host_writers.hpp"
#include "slot/capture.hpp"
#include "slot/idle.hpp"
#include "slot/operations.hpp"
#include "slot/point.hpp"
#include "slot/retire.hpp"
#include "slot/slots.hpp"
#include "slot/stream_call.hpp"
#include "slot/wait_limit.hpp"
#include "timeline/event_node.hpp"

#include <runnel/completion.hpp>
#include <runnel/event.hpp>
#include <runnel/stoppable.hpp>

#include <cstdio>
#include <exception>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

/// Whether the stream has finished.
/// @throws errc::capture if it is being captured
[[nodiscard]] bool poll(const StreamCall& call) {
  {
    const StreamQueryLock beside_captures{call.slot()};
    if (any_capture_seen())
      // The failing query would invalidate the capture.
      refuse_in_capture(call.slot(), call.operation(), refusal::nothing_runs);
    if (!is_complete(call_beside_captures([&] { return beside_captures.query(); }),
                     call.operation()))
      return false;
  }
  emit_complete(call.slot());
  complete_if_asked(call.slot());
  return true;
}

constexpr const char* waiting = "wait for a stream";

/// Makes the stream's device current, and waits for the stream. Returns the slot: a stored
/// exception is thrown after the caller's device is current again.
Slot& synchronize_slot(StreamRef stream) {
  enter(waiting);
  const StreamCall call{live_slot(stream), waiting};
  refuse_in_capture(call.slot(), waiting, refusal::nothing_runs);
  {
    const ScopedWait wait{waiting, {.stream = stream.id()}};
    call.check(backend::stream_synchronize(call.handle()));
  }
  emit_complete(call.slot());
  complete_if_asked(call.slot());
  return call.slot();
}

/// Waits for the work that has been submitted so far. Records an event, since other threads may
/// submit more. False if the limit is reached first.
[[nodiscard]] bool wait_for_submitted(Slot& slot, const WaitLimit& limit) {
  if (limit.is_reached()) return false;
  const EventRef end = take_event(slot.device, {}, waiting);
  {
    const StreamCall call{slot, waiting};
    call.record(end.get());
  }
  return limit.wait_until([&] { return has_happened(end.get(), waiting); });
}

/// Requires: the device is current.
[[nodiscard]] NativeStream create_native(int device, const PartitionData* part, bool blocking,
                                         int priority, const char* operation) {
  native::stream handle{};
  if (part == nullptr) {
    check(backend::stream_create(handle, blocking, priority), operation);
    return {handle, device, blocking_if(blocking)};
  }
  check(backend::stream_create_in(handle, part->native, priority), operation);
  // Each runtime creates only one kind in a partition.
  if (const backend::status s = backend::stream_is_blocking(handle, blocking); s != backend::ok) {
    succeeded_or_forget(backend::stream_destroy(handle));
    throw_status(s, operation);
  }
  return {handle, device, blocking_if(blocking)};
}

Slot* create_stream(Device device, const StreamOptions& options) {
  constexpr const char* operation = "create a stream";
  enter(operation);
  watch_main_thread();
  const PriorityRange range = priority_range_of(device.ordinal(), operation);
  const PartitionData* const part = Access::data(options.partition);
  if (part != nullptr && part->device != device.ordinal())
    throw_invalid_argument(operation, "the partition is of another device");
  FreshSlot fresh = take_slot(device.ordinal());
  const ScopedDevice on{device.ordinal(), operation};
  const NativeStream made = create_native(device.ordinal(), part, options.blocking,
                                          range.clamp(options.priority).value, operation);
  Slot* const slot = fresh.release();
  slot->part = part;
  publish_created(slot, made);
  if (options.name != nullptr) {
    std::snprintf(slot->name, sizeof slot->name, "%s", options.name);
    backend::name_stream(made.handle, slot->name);
  }
  emit_made(*slot, operation);
  return slot;
}

constexpr const char* wrapping = "wrap a native stream";

/// The stream's device. Some runtimes cannot report it: then the caller must have named the device.
int find_device(native::stream handle, std::optional<Device> named) {
  int device = 0;
  const backend::status s = backend::stream_device(handle, device);
  if (s == backend::ok) return device;
  if (!named || backend::classify(s) != errc::not_supported) throw_status(s, wrapping);
  backend::forget_error(s);
  return named->ordinal();
}

/// The properties of a handle, as the runtime reports them.
/// @throws errc::invalid_argument for a handle that cannot be wrapped
NativeStream native_stream_of(native::stream handle, std::optional<Device> device) {
  switch (default_meant_by(handle)) {
    case DefaultMeant::of_device:
      throw_invalid_argument(wrapping,
                             "0 and 1 mean the default stream: say device.default_stream(), or "
                             "StreamRef::from_native()");
    case DefaultMeant::of_thread:
      throw_invalid_argument(
          wrapping,
          "that is the thread's default stream: say StreamRef::per_thread_default(device)");
    case DefaultMeant::none:
      break;
  }
  if (device) require_device(device->ordinal(), wrapping);
  const int actual = find_device(handle, device);
  if (device && device->ordinal() != actual)
    throw_invalid_argument(wrapping, "the stream belongs to another device");
  bool capturing = false;
  check(query_capture(handle, capturing), wrapping);
  if (capturing)
    return {handle, actual, Blocking::unknown};  // The question would break the capture.
  bool blocking = false;
  check(backend::stream_is_blocking(handle, blocking), wrapping);
  return {handle, actual, blocking_if(blocking)};
}

Slot* wrap_stream(native::stream handle, std::optional<Device> device, Holder holder) {
  enter(wrapping);
  const NativeStream stream = native_stream_of(handle, device);
  if (holder == Holder::owner) watch_main_thread();
  bool is_new = false;
  Slot* const slot = wrap_handle(stream, holder, is_new);
  if (slot == nullptr)
    throw_invalid_argument(
        wrapping, "a Stream owns the handle already: borrow it, or release() it there first");
  if (is_new) emit_made(*slot, wrapping);
  return slot;
}

[[nodiscard]] SlotReference wrap_stream(native::stream handle, std::optional<Device> device,
                                        Ownership ownership) {
  const bool is_owner = ownership == Ownership::take;
  return {wrap_stream(handle, device, is_owner ? Holder::owner : Holder::borrower), is_owner};
}

StreamRef view_stream(native::stream handle, std::optional<Device> device) {
  switch (default_meant_by(handle)) {
    case DefaultMeant::of_device:
      return device.value_or(Device::current()).default_stream();
    case DefaultMeant::of_thread:
      return StreamRef::per_thread_default(device.value_or(Device::current()));
    case DefaultMeant::none:
      break;
  }
  Slot* const slot = wrap_stream(handle, device, Holder::views);
  return view_of(key_of(*slot));
}

}  // namespace

// CUDA and HIP name these values: cudaStreamLegacy and cudaStreamPerThread, hipStreamLegacy and
// hipStreamPerThread.
DefaultMeant default_meant_by(native::stream handle) noexcept {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 1) return DefaultMeant::of_device;
  return number == 2 || handle == backend::per_thread_default_stream() ? DefaultMeant::of_thread
                                                                       : DefaultMeant::none;
}

Blocking learn_blocking(const Slot& slot) noexcept {
  const Blocking known = blocking_of(slot);
  bool blocking = false;
  if (known != Blocking::unknown || capture_state(slot.handle) != CaptureState::none ||
      !succeeded_or_forget(backend::stream_is_blocking(slot.handle, blocking)))
    return known;
  slot.blocking.store(blocking_if(blocking), std::memory_order_relaxed);
  return blocking_if(blocking);
}

void drop_stream(SlotReference reference) noexcept {
  count_down(counters.streams);
  Slot& slot = static_cast<Slot&>(*reference.slot());
  if (release_mode() == Release::never) {  // perhaps a forked child, where no lock may be taken
    const bool is_last = slot.references.fetch_sub(1, std::memory_order_relaxed) == 1;
    if (reference.is_owner() || is_last) slot.id.store(0, std::memory_order_release);
  } else if (drop_reference(slot, reference.is_owner())) {
    retire_slot(&slot);
  }
}

std::string describe(const StreamSlot* slot, uint64_t id) {
  if (id == 0) return "Stream(moved from)";
  char text[96];
  const auto number = static_cast<unsigned long long>(id);
  if (!is_live(slot, id))
    std::snprintf(text, sizeof text, "Stream(id %llu, destroyed)", number);
  else
    std::snprintf(text, sizeof text, "Stream(id %llu, device %d%s%s%s)", number, slot->device,
                  slot->is_default ? ", default" : "", slot->name[0] != '\0' ? ", " : "",
                  slot->name);
  return text;
}

}  // namespace detail

using namespace detail;

Stream::Stream(SlotReference reference) noexcept
    : StreamRef{reference.slot(), reference.slot()->id.load(std::memory_order_relaxed)},
      held_{reference} {
  count_up(counters.streams);
}
Stream::Stream(Device device, StreamOptions options)
    : Stream{SlotReference{create_stream(device, options), true}} {}

Stream& Stream::operator=(Stream&& other) noexcept {
  Stream taken{std::move(other)};
  std::swap(slot_, taken.slot_);
  std::swap(id_, taken.id_);
  std::swap(held_, taken.held_);
  return *this;
}

Stream Stream::from_native(native::stream handle, Device device, Ownership ownership) {
  return Stream{wrap_stream(handle, device, ownership)};
}
Stream Stream::from_native(native::stream handle, Ownership ownership) {
  return Stream{wrap_stream(handle, std::nullopt, ownership)};
}
StreamRef StreamRef::from_native(native::stream handle, Device device) {
  return view_stream(handle, device);
}
StreamRef StreamRef::from_native(native::stream handle) {
  return view_stream(handle, std::nullopt);
}

native::stream Stream::release() {
  refuse_in_child("release a stream");
  // While this object refers to the slot, no other stream uses it: its id is 0 or this stream's.
  if (!held_ || held_.slot()->id.load(std::memory_order_acquire) == 0) throw_dead_stream(id_);
  const SlotReference held = std::exchange(held_, {});
  const native::stream handle = held.slot()->handle;
  if (held.is_owner()) {
    disown(static_cast<Slot&>(*held.slot()));
    emit(
        [&] { return Operation{.kind = OperationKind::stream_released, .stream = key_of(*this)}; });
  }
  drop_stream({held.slot(), false});
  forget();
  return handle;
}

Priority StreamRef::priority() const {
  const StreamCall call{*this, "ask for a stream's priority"};
  int priority = 0;
  call.check(backend::stream_priority(call.handle(), priority));
  return priority;
}

bool StreamRef::is_blocking() const {
  constexpr const char* operation = "ask whether a stream is blocking";
  const Blocking known = learn_blocking(live_slot(*this));
  if (known == Blocking::unknown)
    throw_error(errc::capture, operation,
                "the stream was wrapped while it was being captured: ask after the capture");
  return known == Blocking::yes;
}

int StreamRef::multiprocessors() const {
  const StreamCall call{*this, "ask for a stream's multiprocessors"};
  const PartitionData* const part = call.slot().part;
  return part != nullptr ? part->multiprocessors : device().multiprocessor_count();
}

bool detail::is_capturing(StreamRef stream, const char* operation) {
  enter(operation);
  const StreamCall call{live_slot(stream), operation};
  return !is_legacy_default(call.slot()) && is_capturing(call.slot(), operation);
}

bool StreamRef::is_capturing() const {
  return detail::is_capturing(*this, "ask whether a stream is being captured");
}

bool StreamRef::query() const {
  constexpr const char* operation = "ask whether a stream has finished";
  enter(operation);
  return poll(StreamCall{live_slot(*this), operation});
}

void StreamRef::synchronize() const {
  Slot& slot = synchronize_slot(*this);
  deliver_failure(slot);
}

void detail::set_if_failed(std::error_code& code, StreamRef stream) noexcept {
  catch_errors_into(code, [&] {
    Slot& slot = synchronize_slot(stream);
    if (std::exception_ptr failure = kept_failure(slot); failure != nullptr) [[unlikely]]
      code = Outcome{std::move(failure)}.code();
  });
}

namespace {
constexpr const char* waiting_at_exit = "wait for a stream at the end of a scope";
}

SynchronizeAtExit::SynchronizeAtExit(StreamRef stream) : stream_{stream} {
  enter(waiting_at_exit);
  refuse_in_capture(live_slot(stream), waiting_at_exit, refusal::nothing_runs);
  live_point(stream);
}

SynchronizeAtExit::~SynchronizeAtExit() {
  std::error_code code;
  stream_.synchronize(code);
  if (stream_.is_valid() || code != errc::invalid_handle) return;
  Point end = Point::of(key_of(stream_));
  is_passed(end, waiting_at_exit);
}

namespace {

[[nodiscard]] bool wait_for(StreamRef stream, const WaitLimit& limit) {
  enter(waiting);
  Slot& slot = live_slot(stream);
  {
    const StreamCall call{slot, waiting};
    refuse_in_capture(slot, waiting, refusal::nothing_runs);
  }
  const ScopedWait wait{waiting, {.stream = stream.id()}};
  if (!poll(StreamCall{slot, waiting}) && !wait_for_submitted(slot, limit)) return false;
  complete_if_asked(slot);
  deliver_failure(slot);
  return true;
}

}  // namespace

bool StreamRef::synchronize_to(std::chrono::steady_clock::time_point deadline) const {
  return wait_for(*this, {.deadline = deadline});
}
bool synchronize(StreamRef stream, const std::stop_token& stop) {
  return wait_for(stream, {.stop = stop});
}

namespace {

/// Waits for an interprocess event of another device through a stream of that device. NVIDIA's
/// driver 580 crashes if the stream waits for the event directly.
void wait_from_device(const StreamCall& call, Device device, native::event event) {
  {
    const SuppressEvents suppressed;
    const Stream between{device};
    call.check(backend::stream_wait_event(between.native(), event));
    const Event passed = between.record_event();
    call.check(backend::stream_wait_event(call.handle(), passed.native()));
  }
  call.emit_wait(event);
}

void make_wait(StreamRef stream, const EventBase& event) {
  constexpr const char* operation = "make a stream wait for an event";
  const CurrentNode node{Access::nodes(event, operation)};
  Slot& slot = enter_stream(stream, operation, 0, node.get());
  const StreamCall call{slot, operation};
  if (Access::is_waited_for_as_node(event, call)) [[unlikely]]
    return;
  if (!node) return;  // An event that was never recorded is complete.
  if (!node->kind.interprocess) [[likely]]
    return call.wait_for(node.get(), node->is_captured.load(std::memory_order_relaxed));
  const OutsideWait counted{stream};
  if (node->device == slot.device)
    call.wait_for(node.get(), false);
  else
    wait_from_device(call, Device{node->device}, node.get());
}

/// The event that wait_stream() records on the awaited stream: the stream's own event, or a pooled
/// one while another thread uses the own one. Two threads that shared an event would still get a
/// correct order, but a stream could wait for more work than necessary.
class WaitEvent : NotCopied {
 public:
  WaitEvent(Slot& slot, const char* operation) : slot_{slot}, is_own_{slot.wait_event_busy} {
    if (is_own_) event_ = std::move(slot.wait_event);
    if (!event_) [[unlikely]]
      event_ = take_event(slot.device, {}, operation);
  }
  ~WaitEvent() {
    if (is_own_) slot_.wait_event = std::move(event_);
  }
  native::event get() const noexcept { return event_.get(); }

 private:
  Slot& slot_;
  TryFlag is_own_;
  EventRef event_{};
};

}  // namespace

void StreamRef::wait_event(const Event& event) const { make_wait(*this, event); }
void StreamRef::wait_event(const TimedEvent& event) const { make_wait(*this, event); }

void StreamRef::wait_stream(StreamRef other) const {
  constexpr const char* operation = "make a stream wait for another";
  Slot& own = enter_stream(*this, operation, other.id());
  Slot& awaited = live_slot(other);
  if (&own == &awaited) return;
  refuse_beside_capture(awaited, operation);
  const WaitEvent event{awaited, operation};
  bool joins = false;
  {
    const StreamCall call{awaited, operation};
    joins = any_capture_seen() && detail::is_capturing(awaited, operation);
    call.record(event.get());
  }
  StreamCall{own, operation}.wait_for(event.get(), joins, other.id());
}

Event StreamRef::record_event() const { return Event{*this}; }
void StreamRef::record_event(Event& event) const { event.record(*this); }
void StreamRef::record_event(TimedEvent& event) const { event.record(*this); }

}  // namespace runnel::inline RUNNEL_ABI
