// SPDX-License-Identifier: Apache-2.0
#include "base/in_hook.hpp"
#include "base/operation.hpp"
#include "base/sync.hpp"
#include "observe/hook_event.hpp"
#include "stream/stream_point.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {

namespace {
void set_stream(HookEvent& event, const StreamSlot& slot, StreamName& name) noexcept {
  event.native_stream = slot.handle;
  std::copy_n(slot.name, name.size(), name.data());
  event.stream_name = name.data();
}
}  // namespace

HookEvent hook_event(const Operation& operation, StreamName& name) noexcept {
  HookEvent event{.kind = static_cast<HookKind>(operation.kind),
                  .phase = operation.phase,
                  .failed = operation.failed,
                  .captured = operation.captured,
                  .number = operation.number,
                  .operation = operation.name,
                  .stream = operation.stream.id,
                  .other_stream = operation.other_stream,
                  .device = operation.device,
                  .event = operation.event,
                  .to = operation.to,
                  .from = operation.from,
                  .bytes = operation.bytes,
                  .to_kind = operation.to_kind,
                  .from_kind = operation.from_kind,
                  .exception = operation.exception};
  if (operation.stream.slot == nullptr) return event;
  const Slot& slot = *operation.stream.slot;
  event.device = slot.device;
  // The thread that ends a stream still has its slot. Another stream may use that of a stream that
  // ended earlier.
  if (event.kind == HookKind::stream_ended)
    set_stream(event, slot, name);
  else if (const HandleLock locked{operation.stream})
    set_stream(event, slot, name);
  return event;
}

namespace {

constinit sync::Atomic<Hook> user_hook{nullptr};
constinit sync::Mutex setting;  // the hook and its bit in `observers` change together
thread_local constinit const SourcePlace* location = nullptr;

void call_hook(const Operation& operation) noexcept {
  const Hook hook = user_hook.load(std::memory_order_acquire);
  if (hook == nullptr || !is_for_hooks(operation)) return;
  StreamName name;
  HookEvent event = hook_event(operation, name);
  if (location != nullptr) event.where = *location;
  const InHook within;
  hook(event);
}

}  // namespace

extern const Observer hooks_observer;
constinit const Observer hooks_observer{observer_hook, nullptr, call_hook};

}  // namespace detail

Hook set_hook(Hook hook) noexcept {
  const std::lock_guard lock{detail::setting};
  const Hook old = detail::user_hook.exchange(hook, std::memory_order_acq_rel);
  detail::set_observer(detail::observer_hook, hook != nullptr);
  return old;
}

const char* to_string(HookKind kind) noexcept {
  switch (kind) {
    case HookKind::stream_made:
      return "stream made";
    case HookKind::stream_ended:
      return "stream ended";
    case HookKind::event_recorded:
      return "event recorded";
    case HookKind::event_waited:
      return "event waited";
    case HookKind::stream_waited:
      return "stream waited";
    case HookKind::copy:
      return "copy";
    case HookKind::fill:
      return "fill";
    case HookKind::host_function:
      return "host function";
    case HookKind::host_function_run:
      return "host function run";
    case HookKind::graph_launch:
      return "graph launch";
    case HookKind::allocation:
      return "allocation";
    case HookKind::deallocation:
      return "deallocation";
    case HookKind::host_wait:
      return "host wait";
    case HookKind::lost_exception:
      return "lost exception";
    case HookKind::range:
      break;
  }
  return "range";
}

HookLocation::HookLocation(const char* file, const char* function, unsigned line) noexcept
    : here_{file, function, line}, outer_{std::exchange(detail::location, &here_)} {}
HookLocation::~HookLocation() { detail::location = outer_; }

}  // namespace runnel::inline RUNNEL_ABI
