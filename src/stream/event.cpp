// SPDX-License-Identifier: Apache-2.0
#include <runnel/event.hpp>
#include <runnel/stoppable.hpp>

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/hang_report.hpp"
#include "base/process.hpp"
#include "base/set_by_call.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "stream/event_pool.hpp"
#include "stream/graph_functions.hpp"
#include "stream/idle.hpp"
#include "stream/ipc.hpp"
#include "stream/observed.hpp"
#include "stream/patience.hpp"
#include "stream/recorded_event.hpp"
#include "stream/stream_call.hpp"
#include "stream/watcher.hpp"

#include <runnel/detail/access.hpp>

#include <cmath>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

[[nodiscard]] backend::EventKind kind_of(bool timed, EventOptions options) noexcept {
  return {.timed = timed, .blocking_wait = options.blocking_wait, .interprocess = options.interprocess};
}

/// The stream that a report about a wait for the event should name; 0 if it is not known, or nothing is reported.
[[nodiscard]] std::int64_t recorder_for_report(native::event event) noexcept {
  return are_hangs_reported() ? static_cast<std::int64_t>(recorder_of(event)) : 0;
}

/// Whether the event has happened. If so, the host may use what the event stands for.
[[nodiscard]] bool poll(native::event event, const char* operation) {
  if (!has_happened_beside_captures(event, operation)) return false;
  tell_complete(event);
  return true;
}

}  // namespace

native::event Access::recorded(const EventBase& event) noexcept {
  return event.recorded_.load(std::memory_order_acquire) ? event.handle_.load(std::memory_order_acquire) : nullptr;
}

// Two threads may record one event at once. A record that needs another native event writes `handle_` and `device_` under this lock, and
// adds one to `changes_` before and after. A thread that reads both without the lock compares `changes_`: then it knows whether they belong
// together.
static constinit sync::Mutex changing;

/// Counting would cost each call 10 ns, so calls are counted only once the handle may be replaced. An uncounted call can only have read the
/// first handle, which is kept: whoever reads a later one also sees the flag, which is set before.
HandleInUse::HandleInUse(const EventBase& event, const char* operation) {
  event.require_valid(operation);
  if (event.options_.interprocess) [[unlikely]] {
    const std::lock_guard lock{changing};  // so that handle and device belong together
    counted_ = &event;
    event.users_.fetch_add(1);
    handle_ = Access::recorded(event);
    interprocess_device_ = event.device_.load(std::memory_order_relaxed);
    return;
  }
  handle_ = Access::recorded(event);
  if (!event.is_replaceable_.load(std::memory_order_relaxed)) [[likely]]
    return;
  counted_ = &event;
  event.users_.fetch_add(1);
  handle_ = event.recorded_.load() ? event.handle_.load() : nullptr;  // after the count, which a thread reads that replaces the handle
}

void EventBase::refuse_captured(native::event event, const char* operation) const {
  const bool is_captured = captured_.load(std::memory_order_relaxed);
  if (is_captured || (are_captures_open() && is_event_of_open_capture(event))) [[unlikely]]
    throw_error(errc::capture, operation, "the event was recorded in a capture: it marks a place in a graph");
}

EventBase::EventBase(EventBase&& other) noexcept
    : handle_{other.handle_.exchange({}, std::memory_order_relaxed)},
      recorded_{other.recorded_.exchange(false, std::memory_order_relaxed)},
      is_replaceable_{other.is_replaceable_.load(std::memory_order_relaxed)},
      captured_{other.captured_.load(std::memory_order_relaxed)},
      watched_{other.watched_.exchange(false, std::memory_order_relaxed)},
      device_{other.device_.load(std::memory_order_relaxed)},
      options_{other.options_},
      timed_{other.timed_},
      first_{std::exchange(other.first_, {})},
      later_{std::exchange(other.later_, nullptr)},
      of_graphs_{std::move(other.of_graphs_)},
      shared_{other.shared_},
      origin_{other.origin_},
      state_{std::exchange(other.state_, State::moved_from)} {}

EventBase& EventBase::operator=(EventBase&& other) noexcept {
  if (this == &other) return *this;
  discard();
  handle_.store(other.handle_.exchange({}, std::memory_order_relaxed), std::memory_order_relaxed);
  recorded_.store(other.recorded_.exchange(false, std::memory_order_relaxed), std::memory_order_relaxed);
  captured_.store(other.captured_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  watched_.store(other.watched_.exchange(false, std::memory_order_relaxed), std::memory_order_relaxed);
  device_.store(other.device_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  is_replaceable_.store(other.is_replaceable_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  options_ = other.options_;
  first_ = std::exchange(other.first_, {});
  later_ = std::exchange(other.later_, nullptr);
  of_graphs_ = std::move(other.of_graphs_);
  shared_ = other.shared_;
  origin_ = other.origin_;
  state_ = std::exchange(other.state_, State::moved_from);
  return *this;
}

EventBase::~EventBase() { discard(); }

void EventBase::discard() noexcept {
  give_away_unused();
  if (first_.event != nullptr) give_away(std::exchange(first_, {}));
  const native::event event = handle_.exchange({}, std::memory_order_relaxed);
  if (event == nullptr || origin_ == Origin::borrowed) return;
  count_down(counters.events);
  if (of_graphs_ != nullptr)
    of_graphs_ = nullptr;  // which gives it away with the last graph
  else
    give_away({event, device_.load(std::memory_order_relaxed), origin_});
}

void dispose_of(native::event event, int device, backend::EventKind kind, EventFate fate, bool may_be_watched) noexcept {
  if (fate == EventFate::leave) return;
  const bool to_destroy = fate == EventFate::destroy || kind.timed || kind.blocking_wait || kind.interprocess;
  if (may_be_watched && !is_forked_child() && watcher().take_event(event, device, to_destroy)) return;
  if (fate == EventFate::destroy)
    destroy_event(event, device);
  else
    return_event(event, device, kind);
}

EventFate EventBase::fate_of(Origin origin) noexcept {
  if (origin == Origin::borrowed) return EventFate::leave;
  return origin == Origin::taken ? EventFate::destroy : EventFate::pool;
}

/// Requires: the handle is not borrowed, and no call uses it.
void EventBase::give_away(const Replaced& old) const noexcept {
  dispose_of(old.event, old.device, kind_of(timed_, options_), fate_of(old.origin), is_replaceable_.load(std::memory_order_relaxed));
}

/// Requires: no call uses a handle that was replaced.
void EventBase::give_away_unused() noexcept {
  while (later_ != nullptr) {
    const std::unique_ptr<Replaced> each{std::exchange(later_, later_->next)};
    give_away(*each);
  }
}

/// Requires: the handle has been replaced. Without memory to note it, it is leaked.
void EventBase::keep_or_give_away(const Replaced& old) noexcept try {
  if (first_.event == nullptr) {
    first_ = old;
  } else if (users_.load() == 0) {
    give_away(old);
    give_away_unused();
  } else {
    later_ = new Replaced{old.event, old.device, old.origin, later_};
  }
} catch (const std::bad_alloc&) {
}

void EventBase::require_valid(const char* operation) const {
  if (!is_valid()) throw_error(errc::invalid_handle, operation, "the event was moved from");
}

void EventBase::refuse_interprocess() const {
  if (options_.interprocess)
    throw_error(errc::invalid_argument, "make a timed event", "an event shared between processes cannot take the time");
}

/// The first record, or the first on another device: it needs another native event, which replaces the old one only once it is recorded.
/// Until then the old one, and what it marks, stays.
void EventBase::record_on_fresh(Slot& slot) {
  constexpr const char* operation = "record an event";
  const std::lock_guard lock{changing};
  const native::event old = handle_.load(std::memory_order_relaxed);
  const int old_device = device_.load(std::memory_order_relaxed);
  const bool must_stay = origin_ == Origin::borrowed || shared_ || of_graphs_ != nullptr;
  const bool is_free = old_device == slot.device && (!watched_.load(std::memory_order_acquire) || must_stay);
  if (old != nullptr && is_free) return check(backend::event_record(old, slot.handle), operation);
  if (old != nullptr && origin_ == Origin::borrowed)
    throw_error(errc::invalid_argument, operation, "the event was made elsewhere, for another device than the stream's");
  if (old != nullptr && of_graphs_ != nullptr)
    throw_error(errc::invalid_argument, operation,
                "a graph records the event or waits for it, and it is of another device than the stream");
  if (old != nullptr && shared_)
    throw_error(errc::invalid_argument, operation, "other processes share the event, which is of another device than the stream");
  const backend::EventKind kind = kind_of(timed_, options_);
  const native::event fresh = take_event(slot.device, kind, operation);
  if (const backend::status s = backend::event_record(fresh, slot.handle); s != backend::ok) {
    return_event(fresh, slot.device, kind);
    throw_status(s, operation);
  }
  changes_.fetch_add(1);
  device_.store(static_cast<short>(slot.device));
  watched_.store(false, std::memory_order_relaxed);
  if (old != nullptr) is_replaceable_.store(true);
  handle_.store(fresh);
  changes_.fetch_add(1);
  const Origin old_origin = std::exchange(origin_, Origin::pool);
  if (old == nullptr)
    count_up(counters.events);
  else
    keep_or_give_away({old, old_device, old_origin});
}

/// False if the event needs another handle.
bool EventBase::record_again(const StreamCall& call) {
  const unsigned changes = changes_.load();
  const HandleInUse use{*this, call.operation()};
  const bool fits = use.get() != nullptr && device_.load() == call.slot().device;
  // Another thread may be recording on another device: then handle and device may not belong together.
  const bool has_changed = changes % 2 != 0 || changes_.load() != changes;
  if (!fits || has_changed || watched_.load(std::memory_order_relaxed)) return false;
  call.check(backend::event_record(use.get(), call.handle()));
  return true;
}

/// The native event that a graph of the stream's capture may use, made now if there is none. It stays the event's from now on: what the
/// graph records must be seen here. Requires: `changing` is held.
std::shared_ptr<GraphEvent> EventBase::enter_graph(const StreamCall& call, bool records) const {
  require_valid(call.operation());
  if (options_.interprocess)
    throw_error(errc::not_supported, call.operation(), "an event that processes share cannot be a node of a graph");
  const backend::EventKind kind = kind_of(timed_, options_);
  if (handle_.load(std::memory_order_relaxed) == nullptr) {
    const native::event fresh = take_event(call.slot().device, kind, call.operation());
    device_.store(static_cast<short>(call.slot().device), std::memory_order_relaxed);
    handle_.store(fresh, std::memory_order_release);
    count_up(counters.events);
  }
  const int device = device_.load(std::memory_order_relaxed);
  if (records && device != call.slot().device)
    throw_error(errc::invalid_argument, call.operation(), "the event is of another device than the stream, and a graph cannot replace it");
  if (of_graphs_ == nullptr)
    of_graphs_ = std::make_shared<GraphEvent>(handle_.load(std::memory_order_relaxed), device, kind, fate_of(origin_));
  return of_graphs_;
}

void EventBase::record_as_node(const StreamCall& call) {
  const std::shared_ptr<GraphFunctions> graph = functions_of_capture(call, "event");
  const std::lock_guard lock{changing};
  graph->capture(call, {enter_graph(call, true), true});
  captured_.store(false, std::memory_order_relaxed);
  recorded_.store(true, std::memory_order_release);
  if (is_observed()) [[unlikely]]
    observe_record(call.slot(), of_graphs_->event, call.operation());
}

bool EventBase::wait_as_node(const StreamCall& call) const {
  if (!is_capturing(call.slot(), call.operation())) return false;
  const std::shared_ptr<GraphFunctions> graph = functions_of_capture(call, "event");
  const std::lock_guard lock{changing};
  graph->capture(call, {enter_graph(call, false), false});
  if (is_observed()) [[unlikely]]
    observe_wait(call.slot(), of_graphs_->event, call.operation(), 0);
  return true;
}

bool Access::is_waited_for_as_node(const EventBase& event, const StreamCall& call) { return event.wait_as_node(call); }

void EventBase::record(StreamRef stream) {
  constexpr const char* operation = "record an event";
  Slot& slot = enter_stream(stream, operation);
  require_valid(operation);
  const StreamCall call{slot, operation};
  call.disturbs_nothing();
  if (options_.external && is_capturing(slot, operation)) [[unlikely]]
    return record_as_node(call);
  if (!record_again(call)) record_on_fresh(call.slot());
  captured_.store(if_captures_met() && capture_state(call.handle()) == CaptureState::active, std::memory_order_relaxed);
  if (are_captures_open()) [[unlikely]]
    note_event(slot, handle_.load(std::memory_order_relaxed));
  if (is_observed()) [[unlikely]]
    observe_record(call.slot(), handle_.load(std::memory_order_relaxed), operation);
  recorded_.store(true, std::memory_order_release);
  if (are_hangs_reported()) [[unlikely]]
    note_recorder(handle_.load(std::memory_order_relaxed), stream.id());
}

bool EventBase::query() const {
  constexpr const char* operation = "ask whether an event has happened";
  enter(operation);
  const HandleInUse use{*this, operation};
  refuse_captured(use.get(), operation);
  return use.get() == nullptr || poll(use.get(), operation);
}

void EventBase::synchronize() const {
  constexpr const char* operation = "wait for an event";
  enter(operation);
  const HandleInUse use{*this, operation};
  refuse_captured(use.get(), operation);
  if (use.get() == nullptr) return;
  {
    const WatchedWait watched{operation, recorder_for_report(use.get())};
    const RelaxedCapture relaxed{are_captures_open()};
    check(backend::event_synchronize(use.get()), operation);
  }
  tell_complete(use.get());
}

bool EventBase::synchronize_to(std::chrono::steady_clock::time_point deadline) const { return wait_for(*this, {.deadline = deadline}); }

bool wait_for(const EventBase& event, const Patience& patience) {
  constexpr const char* operation = "wait for an event";
  enter(operation);
  const HandleInUse use{event, operation};
  event.refuse_captured(use.get(), operation);
  if (use.get() == nullptr || poll(use.get(), operation)) return true;
  // A later record is not waited for: it takes another native event.
  event.is_replaceable_.store(true);
  event.watched_.store(true, std::memory_order_release);
  const WatchedWait watched{operation, recorder_for_report(use.get())};
  return patience.wait_until([&] { return poll(use.get(), operation); });
}

std::string EventBase::describe() const {
  std::string text = timed_ ? "TimedEvent(" : "Event(";
  if (!is_valid())
    text += "moved from";
  else if (!recorded_.load(std::memory_order_acquire))
    text += "never recorded";
  else
    text += "recorded on device " + std::to_string(device_.load(std::memory_order_relaxed));
  return text + ")";
}

native::event EventBase::native() const {
  require_valid("get the native event");
  return handle_.load(std::memory_order_acquire);
}

Device EventBase::device() const {
  constexpr const char* operation = "ask for an event's device";
  require_valid(operation);
  if (handle_.load(std::memory_order_acquire) == nullptr) throw_error(errc::invalid_argument, operation, "it was never recorded");
  return Device{device_.load(std::memory_order_relaxed)};
}

native::event EventBase::release() {
  constexpr const char* operation = "release an event";
  require_valid(operation);
  if (handle_.load(std::memory_order_acquire) == nullptr) throw_error(errc::invalid_argument, operation, "it was never recorded");
  if (origin_ != Origin::borrowed) count_down(counters.events);
  if (of_graphs_ != nullptr) std::exchange(of_graphs_, nullptr)->fate = EventFate::leave;
  state_ = State::moved_from;
  recorded_.store(false, std::memory_order_relaxed);
  return handle_.exchange({}, std::memory_order_acq_rel);
}

void EventBase::adopt(native::event handle, Device device, Ownership ownership) {
  constexpr const char* operation = "wrap a native event";
  enter(operation);
  if (handle == nullptr) throw_error(errc::invalid_argument, operation, "the handle is null");
  require_device(device.ordinal(), operation);
  handle_.store(handle, std::memory_order_relaxed);
  device_.store(static_cast<short>(device.ordinal()), std::memory_order_relaxed);
  recorded_.store(true, std::memory_order_relaxed);
  origin_ = ownership == Ownership::borrow ? Origin::borrowed : Origin::taken;
  if (origin_ == Origin::taken) count_up(counters.events);
  if (are_hangs_reported()) note_recorder(handle, 0);
  if (is_checking()) checker::adopts_event(handle);
}

namespace {
[[nodiscard]] IpcEventHandle export_native(native::event event, int device, const char* operation) {
  const ScopedDevice on{device, operation};
  IpcContent content{};
  check(backend::export_event(content.native, event), operation);
  return {seal_handle(content, IpcKind::event, device, operation)};
}
}  // namespace

IpcEventHandle EventBase::export_event() {
  constexpr const char* operation = "share an event with other processes";
  enter(operation);
  require_valid(operation);
  if (!options_.interprocess) throw_error(errc::invalid_argument, operation, "it was made without EventOptions{.interprocess = true}");
  const std::lock_guard lock{changing};
  if (shared_ && origin_ == Origin::taken)
    throw_error(errc::invalid_argument, operation, "the event is another process's: send on the handle that it was opened by");
  native::event event = handle_.load(std::memory_order_relaxed);
  const bool is_new = event == nullptr;
  const int device = is_new ? Device::current().ordinal() : device_.load(std::memory_order_relaxed);
  if (is_new) event = take_event(device, kind_of(timed_, options_), operation);
  IpcEventHandle handle;
  try {
    handle = export_native(event, device, operation);
  } catch (...) {
    if (is_new) destroy_event(event, device);
    throw;
  }
  if (is_new) {
    device_.store(static_cast<short>(device), std::memory_order_relaxed);
    handle_.store(event, std::memory_order_release);
    count_up(counters.events);
  }
  shared_ = true;
  recorded_.store(true, std::memory_order_release);  // from now on the runtime is asked: another process may record the event
  if (is_checking()) checker::adopts_event(event);
  return handle;
}

void EventBase::open(const IpcEventHandle& handle) {
  constexpr const char* operation = "open another process's event";
  enter(operation);
  int device = 0;
  const IpcContent content = read_handle(handle.bytes, IpcKind::event, device, operation);
  watch_main_thread();
  native::event event{};
  {
    const ScopedDevice on{device, operation};
    check(backend::open_event(event, content.native), operation);
  }
  adopt(event, Device{device}, Ownership::take);
  shared_ = true;
}

std::chrono::nanoseconds EventBase::elapsed(const EventBase& start, const EventBase& stop) {
  constexpr const char* operation = "measure the time between events";
  enter(operation);
  const HandleInUse from{start, operation}, to{stop, operation};
  start.refuse_captured(from.get(), operation);
  stop.refuse_captured(to.get(), operation);
  if (from.get() == nullptr || to.get() == nullptr)
    throw_error(errc::invalid_argument, operation, from.get() == nullptr ? "the start was never recorded" : "the stop was never recorded");
  if (start.device_.load(std::memory_order_relaxed) != stop.device_.load(std::memory_order_relaxed))
    throw_error(errc::invalid_argument, operation, "the events are on different devices, whose clocks have nothing in common");
  float milliseconds = 0;
  const backend::status s = backend::event_elapsed(milliseconds, from.get(), to.get());
  if (backend::is_not_ready(s)) {
    backend::forget_error(s);
    throw_error(errc::not_ready, operation, "one of the events has not happened yet: synchronize it first");
  }
  const errc code = s == backend::ok ? errc{} : backend::classify(s);
  if ((code == errc::invalid_handle || code == errc::invalid_argument) && (start.of_graphs_ != nullptr || stop.of_graphs_ != nullptr)) {
    backend::forget_error(s);
    throw_error(errc::invalid_argument, operation, "one of the events is recorded by a graph that was not launched yet");
  }
  check(s, operation);
  return std::chrono::nanoseconds{std::llround(static_cast<double>(milliseconds) * 1e6)};
}

void set_if_failed(std::error_code& code, const EventBase& event) noexcept {
  set_by_call(code, [&] { event.synchronize(); });
}

}  // namespace runnel::inline RUNNEL_ABI::detail

bool runnel::synchronize(const detail::EventBase& event, const std::stop_token& stop) { return wait_for(event, {.stop = stop}); }
