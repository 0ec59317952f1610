// SPDX-License-Identifier: Apache-2.0
#include <runnel/event.hpp>
#include <runnel/stoppable.hpp>

#include "base/catch_errors_into.hpp"
#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/ipc.hpp"
#include "function/graph_functions.hpp"
#include "slot/idle.hpp"
#include "slot/operations.hpp"
#include "slot/stream_call.hpp"
#include "slot/wait_limit.hpp"
#include "timeline/event_node.hpp"

#include <runnel/detail/access.hpp>

#include <cmath>
#include <string>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Other code may have recorded the event.
void emit_adopted(native::event event) noexcept {
  emit([&] { return Operation{.kind = OperationKind::event_adopted, .event = event}; });
}

/// Requires: no other thread uses the event.
[[nodiscard]] EventRef extract(Atomic<EventNode*>& pointer) noexcept {
  EventNode* const node = pointer.load(std::memory_order_relaxed);
  pointer.store(nullptr, std::memory_order_relaxed);
  return EventRef::adopt(node);
}

void move_nodes(EventNodes& to, EventNodes& from) noexcept {
  to.first.store(extract(from.first).release(), std::memory_order_relaxed);
  to.later.store(extract(from.later).release(), std::memory_order_relaxed);
}

}  // namespace

const EventNodes& Access::nodes(const EventBase& event, const char* operation) {
  event.require_valid(operation);
  return event.nodes_;
}

CurrentNode waitable_node(const EventBase& event, const char* operation) {
  enter(operation);
  CurrentNode node{Access::nodes(event, operation)};
  const bool is_captured = node && node->is_captured.load(std::memory_order_relaxed);
  if (is_captured || (node && are_captures_open() && is_event_of_open_capture(node.get())))
      [[unlikely]]
    throw_error(errc::capture, operation, refusal::captured_event);
  return node;
}

EventBase::EventBase(EventBase&& other) noexcept
    : options_{other.options_},
      timed_{other.timed_},
      is_valid_{std::exchange(other.is_valid_, false)} {
  move_nodes(nodes_, other.nodes_);
}

EventBase& EventBase::operator=(EventBase&& other) noexcept {
  if (this == &other) return *this;
  discard();
  move_nodes(nodes_, other.nodes_);
  options_ = other.options_;
  is_valid_ = std::exchange(other.is_valid_, false);
  return *this;
}

EventBase::~EventBase() { discard(); }

void EventBase::discard() noexcept {
  const EventRef first = extract(nodes_.first), later = extract(nodes_.later);
  if (first && first->origin != EventNode::Origin::borrowed) count_down(counters.events);
}

void EventBase::require_valid(const char* operation) const {
  if (!is_valid()) throw_error(errc::invalid_handle, operation, "the event was moved from");
}

void EventBase::refuse_interprocess() const {
  if (options_.interprocess)
    throw_error(errc::invalid_argument, "make a timed event",
                "an event shared between processes cannot take the time");
}

[[nodiscard]] static backend::EventKind kind_of(bool timed, const EventOptions& options) noexcept {
  return {
      .timed = timed, .blocking_wait = options.blocking_wait, .interprocess = options.interprocess};
}

/// A node for a record of this event.
EventRef EventBase::take_node(int device, const char* operation) const {
  return take_event(device, kind_of(timed_, options_), operation);
}

/// The node for a graph of the stream's capture. Created if the event has none. It stays the
/// event's node, so that the event shows what the graph records.
EventRef EventBase::enter_graph(const StreamCall& call, bool records) const {
  require_valid(call.operation());
  if (options_.interprocess)
    throw_error(errc::not_supported, call.operation(),
                "an event that processes share cannot be a node of a graph");
  // A new node was never recorded: until the first launch the event counts as complete.
  EventRef node = CurrentNode{nodes_}.reference();
  if (!node)
    node = publish_first(
        nodes_, make_event(call.slot().device, kind_of(timed_, options_), call.operation()));
  if (records && node->device != call.slot().device)
    throw_invalid_argument(
        call.operation(),
        "the event is of another device than the stream, and a graph cannot replace it");
  node->is_in_graph.store(true, std::memory_order_relaxed);
  return node;
}

void EventBase::record_as_node(const StreamCall& call) {
  EventRef node = enter_graph(call, true);
  const native::event event = node.get();
  node->is_captured.store(false, std::memory_order_relaxed);
  add_to_capture(call, {std::move(node), true});
  call.emit_event(OperationKind::event_recorded, event);
}

bool Access::is_waited_for_as_node(const EventBase& event, const StreamCall& call) {
  if (!event.options_.external || !is_capturing(call.slot(), call.operation())) return false;
  EventRef node = event.enter_graph(call, false);
  const native::event awaited = node.get();
  add_to_capture(call, {std::move(node), false});
  call.emit_wait(awaited);
  return true;
}

void EventBase::record(StreamRef stream) {
  constexpr const char* operation = "record an event";
  Slot& slot = enter_stream(stream, operation);
  require_valid(operation);
  const StreamCall call{slot, operation};
  if (options_.external && is_capturing(slot, operation)) [[unlikely]]
    return record_as_node(call);
  EventNode& node = record_on_node(
      nodes_, slot.device, [&] { return take_node(slot.device, operation); },
      [&](EventNode& each) {
        if (each.device != slot.device) [[unlikely]]
          throw_invalid_argument(
              operation,
              "the event is of another device than the stream, and a graph, another "
              "process or the code that has made it uses it");
        call.check(backend::event_record(each.handle, call.handle()));
        each.recorded_on.store(&slot, std::memory_order_relaxed);
        each.is_captured.store(
            any_capture_seen() && capture_state(call.handle()) == CaptureState::active,
            std::memory_order_relaxed);
      });
  if (are_captures_open()) [[unlikely]]
    note_event(call.handle(), node.handle);
  call.emit_event(OperationKind::event_recorded, node.handle);
}

bool EventBase::query() const {
  constexpr const char* operation = "ask whether an event has happened";
  const CurrentNode node = waitable_node(*this, operation);
  return !node || has_happened(node.get(), operation);
}

void EventBase::synchronize() const {
  constexpr const char* operation = "wait for an event";
  const CurrentNode node = waitable_node(*this, operation);
  if (!node) return;
  {
    const ScopedWait wait{operation, {.event = node.get()}};
    check(backend::event_synchronize(node.get()), operation);
  }
  emit_complete(node.get());
}

static bool wait_for(const EventBase& event, const WaitLimit& limit) {
  constexpr const char* operation = "wait for an event";
  CurrentNode node = waitable_node(event, operation);
  if (!node || has_happened(node.get(), operation)) return true;
  // This reference keeps the node: a later record uses another node, and is not waited for.
  const EventRef reference = std::move(node).reference();
  const ScopedWait wait{operation, {.event = reference.get()}};
  return limit.wait_until([&] { return has_happened(reference.get(), operation); });
}

bool EventBase::synchronize_to(std::chrono::steady_clock::time_point deadline) const {
  return wait_for(*this, {.deadline = deadline});
}

std::string EventBase::describe() const {
  std::string text = timed_ ? "TimedEvent(" : "Event(";
  const CurrentNode node{nodes_};
  if (!is_valid())
    text += "moved from";
  else if (!node)
    text += "never recorded";
  else
    text += "recorded on device " + std::to_string(node->device);
  return text + ")";
}

native::event EventBase::native() const {
  return CurrentNode{Access::nodes(*this, "get the native event")}.get();
}

Device EventBase::device() const {
  constexpr const char* operation = "ask for an event's device";
  const CurrentNode node{Access::nodes(*this, operation)};
  if (!node) throw_invalid_argument(operation, "it was never recorded");
  return Device{node->device};
}

native::event EventBase::release() {
  constexpr const char* operation = "release an event";
  require_valid(operation);
  const EventRef first = extract(nodes_.first), later = extract(nodes_.later);
  if (!first) throw_invalid_argument(operation, "it was never recorded");
  if (first->origin != EventNode::Origin::borrowed) count_down(counters.events);
  is_valid_ = false;
  const EventRef& present = later ? later : first;
  present->origin = EventNode::Origin::borrowed;
  return present.get();
}

void EventBase::adopt(native::event handle, Device device, Ownership ownership) {
  constexpr const char* operation = "wrap a native event";
  enter(operation);
  if (handle == nullptr) throw_invalid_argument(operation, "the handle is null");
  require_device(device.ordinal(), operation);
  EventRef node = wrap_event(
      handle, device.ordinal(),
      ownership == Ownership::take ? EventNode::Origin::taken : EventNode::Origin::borrowed);
  node->kind.interprocess = options_.interprocess;
  node->is_shared.store(options_.interprocess,
                        std::memory_order_relaxed);  // so that it is not exported again
  static_cast<void>(publish_first(nodes_, std::move(node)));
  emit_adopted(handle);
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
  if (!options_.interprocess)
    throw_invalid_argument(operation, "it was made without EventOptions{.interprocess = true}");
  EventRef node = CurrentNode{nodes_}.reference();
  if (node && node->is_shared.load(std::memory_order_relaxed) &&
      node->origin == EventNode::Origin::taken)
    throw_invalid_argument(
        operation, "the event is another process's: send on the handle that it was opened by");
  const bool is_first = !node;
  if (is_first) node = take_node(Device::current().ordinal(), operation);
  IpcEventHandle handle = export_native(node.get(), node->device, operation);
  // From now on the runtime is queried: another process may record the event.
  node->is_shared.store(true, std::memory_order_relaxed);
  if (is_first) {
    const native::event exported = node.get();
    node = publish_first(nodes_, std::move(node));
    // Another thread has recorded the event meanwhile.
    if (node.get() != exported) handle = export_native(node.get(), node->device, operation);
    node->is_shared.store(true, std::memory_order_relaxed);
  }
  emit_adopted(node.get());
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
}

std::chrono::nanoseconds EventBase::elapsed(const EventBase& start, const EventBase& stop) {
  constexpr const char* operation = "measure the time between events";
  const CurrentNode from = waitable_node(start, operation), to = waitable_node(stop, operation);
  if (!from || !to)
    throw_error(errc::invalid_argument, operation,
                !from ? "the start was never recorded" : "the stop was never recorded");
  if (from->device != to->device)
    throw_invalid_argument(
        operation, "the events are on different devices, whose clocks have nothing in common");
  float milliseconds = 0;
  const backend::status s = backend::event_elapsed(milliseconds, from.get(), to.get());
  if (backend::is_not_ready(s)) {
    backend::forget_error(s);
    throw_error(errc::not_ready, operation,
                "one of the events has not happened yet: synchronize it first");
  }
  const errc code = s == backend::ok ? errc{} : backend::classify(s);
  const bool is_of_graph = from->is_in_graph.load(std::memory_order_relaxed) ||
                           to->is_in_graph.load(std::memory_order_relaxed);
  if (is_of_graph && (code == errc::invalid_handle || code == errc::invalid_argument)) {
    backend::forget_error(s);
    throw_invalid_argument(operation,
                           "one of the events is recorded by a graph that was not launched yet");
  }
  check(s, operation);
  return std::chrono::nanoseconds{std::llround(static_cast<double>(milliseconds) * 1e6)};
}

void set_if_failed(std::error_code& code, const EventBase& event) noexcept {
  catch_errors_into(code, [&] { event.synchronize(); });
}

}  // namespace runnel::inline RUNNEL_ABI::detail

bool runnel::synchronize(const detail::EventBase& event, const std::stop_token& stop) {
  return wait_for(event, {.stop = stop});
}
