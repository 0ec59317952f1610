// SPDX-License-Identifier: Apache-2.0
#include "base/hooks.hpp"

#include "base/process.hpp"
#include "base/sync.hpp"

#include <exception>
#include <mutex>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {

thread_local constinit bool in_hook = false;

namespace {

constinit sync::Atomic<Hook> user_hook{nullptr};
constinit sync::Atomic<Hook> trace_hook{nullptr};
constinit sync::Atomic<std::uint64_t> last_number{0};
constinit sync::Mutex setting;  // the hook and its bit in `observers` change together

thread_local constinit int depth = 0;  // of operations that are told of
thread_local constinit const SourcePlace* location = nullptr;

}  // namespace

std::uint64_t next_told_number() noexcept { return last_number.fetch_add(1, std::memory_order_relaxed) + 1; }

void tell(const HookEvent& event) noexcept {
  if (in_hook) return;  // a destructor that ran in a hook
  if (const Hook trace = trace_hook.load(std::memory_order_acquire)) trace(event);
  const Hook hook = user_hook.load(std::memory_order_acquire);
  if (hook == nullptr) return;
  HookEvent located = event;
  if (location != nullptr) located.where = *location;
  const InHook within;
  hook(located);
}

std::uint64_t tell_once(HookEvent event) noexcept {
  if (depth > 0 && event.kind != HookKind::lost_exception) return 0;  // that is no part of the operation, but of earlier work
  event.number = next_told_number();
  tell(event);
  return event.number;
}

void ToldOperation::begin(const HookEvent& event) noexcept {
  is_begun_ = true;
  is_part_ = depth++ > 0 && event.kind != HookKind::host_function_run;
  exceptions_ = std::uncaught_exceptions();
  new (&event_) HookEvent{event};
  if (is_part_) return;
  event_.phase = HookPhase::before;
  if (event_.number == 0) event_.number = next_told_number();
  tell(event_);
}

void ToldOperation::end() noexcept {
  --depth;
  if (is_part_) return;
  event_.phase = HookPhase::after;
  event_.failed = event_.failed || std::uncaught_exceptions() > exceptions_;
  tell(event_);
}

Untold::Untold() noexcept { ++depth; }
Untold::~Untold() { --depth; }

void set_trace_hook(Hook hook) noexcept {
  trace_hook.store(hook, std::memory_order_release);
  set_observer(observer_trace, hook != nullptr);
}

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
