// SPDX-License-Identifier: Apache-2.0
#include "base/in_hook.hpp"
#include "base/operation.hpp"
#include "base/sync.hpp"
#include "observe/hook_event.hpp"
#include "slot/point.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {

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
  std::optional<HandleLock> locked;
  if (event.kind != HookKind::stream_ended && !locked.emplace(operation.stream)) return event;
  event.native_stream = slot.handle;
  std::copy_n(slot.name, name.size(), name.data());
  event.stream_name = name.data();
  return event;
}

namespace {

constinit sync::Atomic<Hook> user_hook{nullptr};
constinit sync::Mutex setting;  // the hook and its bit in `observers` change together
thread_local constinit const SourcePlace* location = nullptr;

void call_hook(const Operation& operation) noexcept {
  const Hook hook = user_hook;
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

using namespace detail;

Hook set_hook(Hook hook) noexcept {
  const std::lock_guard lock{setting};
  const Hook old = user_hook.exchange(hook);
  set_observer(observer_hook, hook != nullptr);
  return old;
}

const char* to_string(HookKind kind) noexcept {
  constexpr const char* names[] = {"stream made",  "stream ended",  "event recorded",
                                   "event waited", "stream waited", "copy",
                                   "fill",         "host function", "host function run",
                                   "graph launch", "allocation",    "deallocation",
                                   "host wait",    "range",         "lost exception"};
  return names[static_cast<size_t>(kind)];
}

HookLocation::HookLocation(const char* file, const char* function, unsigned line) noexcept
    : here_{file, function, line}, outer_{std::exchange(location, &here_)} {}
HookLocation::~HookLocation() { location = outer_; }

}  // namespace runnel::inline RUNNEL_ABI
