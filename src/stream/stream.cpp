// SPDX-License-Identifier: Apache-2.0
#include <runnel/stream.hpp>

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "device/device_table.hpp"
#include "stream/capture.hpp"
#include "stream/event_pool.hpp"
#include "stream/idle.hpp"
#include "stream/recorded_event.hpp"
#include "stream/slots.hpp"
#include "stream/stream_device.hpp"
#include "stream/uses.hpp"

#include <runnel/event.hpp>

#include <cstdio>
#include <optional>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

[[nodiscard]] bool poll(Slot& slot, const char* operation) {
  const StreamDevice on{slot, operation};
  if (!has_finished(slot, operation)) return false;
  if (slot.mark_wanted.load(std::memory_order_relaxed)) [[unlikely]]
    pass_mark(slot);
  return true;
}

/// Takes a slot at once, so that nothing can fail once the native stream is there; gives it back unless it was used.
class SlotReservation {
 public:
  SlotReservation() : slot_{take_slot()} {}
  SlotReservation(const SlotReservation&) = delete;
  SlotReservation& operator=(const SlotReservation&) = delete;
  ~SlotReservation() {
    if (slot_ != nullptr) give_back_slot(slot_);
  }
  [[nodiscard]] Slot* get() const noexcept { return slot_; }
  Slot* use() noexcept { return std::exchange(slot_, nullptr); }

 private:
  Slot* slot_;
};

Slot* create_stream(Device device, const StreamOptions& options) {
  constexpr const char* operation = "create a stream";
  enter(operation);
  watch_thread_exit();
  const PriorityRange range = priority_range_of(device.ordinal(), operation);
  SlotReservation reservation;
  const ScopedDevice on{device.ordinal(), operation};
  native::stream handle{};
  check(backend::stream_create(handle, options.blocking, range.clamp(options.priority.value)), operation);
  Slot* const slot = reservation.use();
  publish_created(slot, {handle, device.ordinal(), options.blocking});
  if (options.name != nullptr) {
    std::snprintf(slot->name, sizeof slot->name, "%s", options.name);
    backend::name_stream(handle, slot->name);
  }
  return slot;
}

constexpr const char* wrapping = "wrap a native stream";

/// What the runtime says of a handle. @throws errc::invalid_argument for one that cannot be wrapped
NativeStream native_stream_of(native::stream handle, std::optional<Device> device) {
  constexpr const char* operation = wrapping;
  if (handle == nullptr)
    throw_error(errc::invalid_argument, operation, "the handle is null; for the default stream say device.default_stream()");
  if (handle == backend::per_thread_default_stream())
    throw_error(errc::invalid_argument, operation, "that is the thread's default stream: say StreamRef::per_thread_default(device)");
  if (device) require_device(device->ordinal(), operation);
  int actual = 0;
  const backend::status told = backend::stream_device(handle, actual);
  if (told != backend::ok && !(device && backend::classify(told) == errc::not_supported)) throw_status(told, operation);
  if (told != backend::ok)
    backend::forget_error(told);
  else if (device && device->ordinal() != actual)
    throw_error(errc::invalid_argument, operation, "the stream belongs to another device");
  bool blocking = false;
  check(backend::stream_is_blocking(handle, blocking), operation);
  return {handle, told == backend::ok ? actual : device->ordinal(), blocking};
}

Slot* wrap_stream(native::stream handle, std::optional<Device> device, Ownership ownership) {
  enter(wrapping);
  const NativeStream stream = native_stream_of(handle, device);
  const bool take = ownership == Ownership::take;
  if (take) watch_thread_exit();
  Slot* slot = nullptr;
  Wrapped answer = wrap_handle(slot, stream, take);
  if (answer == Wrapped::needs_slot) {
    SlotReservation reservation;
    slot = reservation.get();
    answer = wrap_handle(slot, stream, take);  // which another thread may have wrapped meanwhile
    if (answer == Wrapped::published) reservation.use();
  }
  if (answer == Wrapped::has_owner)
    throw_error(errc::invalid_argument, wrapping, "a Stream owns the handle already: borrow it, or release() it there first");
  return slot;
}

}  // namespace

void drop_stream(SlotReference reference) noexcept {
  count_down(counters.streams);
  Slot& slot = static_cast<Slot&>(*reference.slot());
  if (release_mode() == Release::never) {  // no lock: this may be a forked child
    const bool is_last = slot.references.fetch_sub(1, std::memory_order_relaxed) == 1;
    if (reference.is_owner() || is_last) slot.id.store(0, std::memory_order_release);
  } else if (drop_reference(slot, reference.is_owner())) {
    retire_slot(&slot);
  }
}

std::string describe(const StreamSlot* slot, std::uint64_t id) {
  if (id == 0) return "Stream(moved from)";
  char text[96];
  const auto number = static_cast<unsigned long long>(id);
  if (!is_live(slot, id))
    std::snprintf(text, sizeof text, "Stream(id %llu, destroyed)", number);
  else
    std::snprintf(text, sizeof text, "Stream(id %llu, device %d%s%s%s)", number, slot->device, slot->is_default ? ", default" : "",
                  slot->name[0] != '\0' ? ", " : "", slot->name);
  return text;
}

}  // namespace detail

Stream::Stream(detail::SlotReference reference) noexcept
    : StreamRef{reference.slot(), reference.slot()->id.load(std::memory_order_relaxed)}, held_{reference} {
  detail::count_up(detail::counters.streams);
}
Stream::Stream(Device device, StreamOptions options) : Stream{detail::SlotReference{detail::create_stream(device, options), true}} {}

Stream& Stream::operator=(Stream&& other) noexcept {
  Stream taken{std::move(other)};
  std::swap(slot_, taken.slot_);
  std::swap(id_, taken.id_);
  std::swap(held_, taken.held_);
  return *this;
}

Stream Stream::from_native(native::stream handle, Device device, Ownership ownership) {
  return Stream{detail::SlotReference{detail::wrap_stream(handle, device, ownership), ownership == Ownership::take}};
}
Stream Stream::from_native(native::stream handle, Ownership ownership) {
  return Stream{detail::SlotReference{detail::wrap_stream(handle, std::nullopt, ownership), ownership == Ownership::take}};
}

native::stream Stream::release() {
  detail::refuse_in_child("release a stream");
  // The slot has no other stream while this object refers to it, so its id is 0 or this stream's.
  if (!held_ || held_.slot()->id.load(std::memory_order_acquire) == 0) detail::throw_dead_stream(id_);
  const detail::SlotReference held = std::exchange(held_, {});
  const native::stream handle = held.slot()->handle;
  if (held.is_owner()) detail::disown(static_cast<detail::Slot&>(*held.slot()));
  detail::drop_stream({held.slot(), false});
  forget();
  return handle;
}

int StreamRef::priority() const {
  constexpr const char* operation = "ask for a stream's priority";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(*this);
  const detail::StreamDevice on{slot, operation};
  int priority = 0;
  detail::check(backend::stream_priority(slot.handle, priority), operation);
  return priority;
}

bool StreamRef::is_capturing() const {
  constexpr const char* operation = "ask whether a stream is being captured";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(*this);
  const detail::StreamDevice on{slot, operation};
  return detail::is_capturing(slot, operation);
}

bool StreamRef::query() const {
  constexpr const char* operation = "ask whether a stream has finished";
  detail::enter(operation);
  return detail::poll(detail::live_slot(*this), operation);
}

namespace {
constexpr const char* not_in_capture = "the stream is being captured: nothing runs before the graph is launched";
}  // namespace

void StreamRef::synchronize() const {
  constexpr const char* operation = "wait for a stream";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(*this);
  {
    const detail::StreamDevice on{slot, operation};
    detail::refuse_in_capture(slot, operation, not_in_capture);
    detail::check(backend::stream_synchronize(slot.handle), operation);
    if (slot.mark_wanted.load(std::memory_order_relaxed)) [[unlikely]]
      detail::pass_mark(slot);
  }
  detail::deliver_failure(slot);
}

bool StreamRef::synchronize_until(std::chrono::steady_clock::time_point deadline) const {
  constexpr const char* operation = "wait for a stream";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(*this);
  {
    const detail::StreamDevice on{slot, operation};
    detail::refuse_in_capture(slot, operation, not_in_capture);
  }
  if (!detail::poll_until(deadline, [&] { return detail::poll(slot, operation); })) return false;
  detail::deliver_failure(slot);
  return true;
}

namespace {

void wait_for(StreamRef stream, const detail::EventBase& event) {
  constexpr const char* operation = "make a stream wait for an event";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  const native::event handle = detail::recorded_event(event, operation);
  if (handle == nullptr) return;  // never recorded: complete
  const detail::StreamDevice on{slot, operation};
  detail::check(backend::stream_wait_event(slot.handle, handle), operation);
}

/// The event that `wait_stream` records on a stream: the stream's own, or one of the pool while another thread is using that.
/// Sharing it would be harmless to order but could make a stream wait for more than it was promised.
class WaitEvent {
 public:
  WaitEvent(detail::Slot& slot, const char* operation)
      : slot_{slot}, own_{!slot.wait_event_busy.exchange(true, std::memory_order_acquire)} {
    if (own_ && slot.wait_event != nullptr) [[likely]] {
      event_ = slot.wait_event;
      return;
    }
    try {
      event_ = detail::take_event(slot.device, {}, operation);
    } catch (...) {
      if (own_) slot.wait_event_busy.store(false, std::memory_order_release);
      throw;
    }
    if (own_) slot.wait_event = event_;
  }
  WaitEvent(const WaitEvent&) = delete;
  WaitEvent& operator=(const WaitEvent&) = delete;
  ~WaitEvent() {
    if (own_)
      slot_.wait_event_busy.store(false, std::memory_order_release);
    else
      detail::return_event(event_, slot_.device, {});
  }
  [[nodiscard]] native::event get() const noexcept { return event_; }

 private:
  detail::Slot& slot_;
  native::event event_{};
  bool own_;
};

}  // namespace

void StreamRef::wait_event(const Event& event) const { wait_for(*this, event); }
void StreamRef::wait_event(const TimedEvent& event) const { wait_for(*this, event); }

void StreamRef::wait_stream(StreamRef other) const {
  constexpr const char* operation = "make a stream wait for another";
  detail::enter(operation);
  detail::Slot& waiting = detail::live_slot(*this);
  detail::Slot& awaited = detail::live_slot(other);
  if (&waiting == &awaited) return;
  const WaitEvent event{awaited, operation};
  {
    const detail::StreamDevice on{awaited, operation};
    detail::check(backend::event_record(event.get(), awaited.handle), operation);
  }
  const detail::StreamDevice on{waiting, operation};
  detail::check(backend::stream_wait_event(waiting.handle, event.get()), operation);
}

Event StreamRef::record_event() const { return Event{*this}; }
void StreamRef::record_event(Event& event) const { event.record(*this); }
void StreamRef::record_event(TimedEvent& event) const { event.record(*this); }

}  // namespace runnel::inline RUNNEL_ABI
