// SPDX-License-Identifier: Apache-2.0
/// What operations on streams tell the checker. Each function asks first whether the checker is on. Requires, of those that take a slot:
/// the stream's device is current if its handle needs that. Work that is being captured is not told: it does not run yet.
#pragma once

#include "checker/hooks.hpp"
#include "stream/capture.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

[[nodiscard]] inline checker::StreamInfo info_of(const Slot& slot, std::uint64_t id) noexcept {
  return {.id = id,
          .handle = slot.handle,
          .device = slot.device,
          .owned = slot.owned,
          .blocking = slot.blocking,
          .is_legacy_default = is_legacy_default(slot),
          .is_default = slot.is_default,
          .name = slot.name,
          .known_complete = &slot.known_complete};
}
[[nodiscard]] inline checker::StreamInfo info_of(const Slot& slot) noexcept {
  return info_of(slot, slot.id.load(std::memory_order_acquire));
}

[[nodiscard]] inline bool is_checked(const Slot& slot) noexcept {
  return is_checking() && capture_state(slot.handle) == CaptureState::none;
}

inline void tell_work(const Slot& slot) noexcept {
  if (is_checked(slot)) [[unlikely]]
    checker::submits_work(info_of(slot));
}
inline void tell_record(const Slot& slot, native::event event) noexcept {
  if (is_checked(slot)) [[unlikely]]
    checker::records_event(info_of(slot), event);
}
inline void tell_wait(const Slot& slot, native::event event) noexcept {
  if (is_checked(slot)) [[unlikely]]
    checker::waits_for_event(info_of(slot), event);
}
/// Tells the checker that the host has waited for the stream. If the checker knows that already, this takes no lock.
inline void tell_complete(const Slot& slot) noexcept {
  if (is_checking() && slot.known_complete.load(std::memory_order_relaxed) != slot.id.load(std::memory_order_relaxed)) [[unlikely]]
    checker::host_waited_for_stream(info_of(slot));
}
/// The host has waited for the event.
inline void tell_complete(native::event event) noexcept {
  if (is_checking()) [[unlikely]]
    checker::host_waited_for_event(event);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
