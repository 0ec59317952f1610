// SPDX-License-Identifier: Apache-2.0
#include "stream/observed.hpp"

#include "stream/checked.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

HookEvent about_unasked(const Slot& slot, std::uint64_t id, HookKind kind, const char* operation) noexcept {
  return {.kind = kind,
          .operation = operation,
          .stream = id,
          .stream_name = slot.name,
          .device = slot.device,
          .native_stream = slot.hand_out()};
}

HookEvent about(const Slot& slot, HookKind kind, const char* operation) noexcept {
  HookEvent event = about_unasked(slot, slot.id.load(std::memory_order_acquire), kind, operation);
  event.captured = capture_state(slot.handle) != CaptureState::none;
  return event;
}

void observe_record(const Slot& slot, native::event event, const char* operation) noexcept {
  tell_record(slot, event);
  if (!is_told()) return;
  HookEvent told = about(slot, HookKind::event_recorded, operation);
  told.event = event;
  tell_once(told);
}

void observe_wait(const Slot& slot, native::event event, const char* operation, std::uint64_t awaited) noexcept {
  tell_wait(slot, event);
  if (!is_told()) return;
  HookEvent told = about(slot, awaited != 0 ? HookKind::stream_waited : HookKind::event_waited, operation);
  told.event = event;
  told.other_stream = awaited;
  tell_once(told);
}

void tell_stream_made(const Slot& slot, const char* operation) noexcept {
  tell_once(about_unasked(slot, slot.id.load(std::memory_order_acquire), HookKind::stream_made, operation));
}

void observe_stream_end(const Slot& slot, std::uint64_t id) noexcept {
  if (is_checking()) checker::ends_stream(id);
  if (is_told()) tell_once(about_unasked(slot, id, HookKind::stream_ended, "end a stream"));
}

void tell_lost_exception(std::uint64_t id, const std::exception_ptr& exception) noexcept {
  if (exception == nullptr || !is_told()) return;
  tell_once({.kind = HookKind::lost_exception,
             .failed = true,
             .operation = "run a function of a stream that has ended",
             .stream = id,
             .exception = &exception});
}

}  // namespace runnel::inline RUNNEL_ABI::detail
