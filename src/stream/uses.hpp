// SPDX-License-Identifier: Apache-2.0
/// The identity of a stream in use, and the end of a stream. An ending stream leaves its last event
/// in its slot if StreamPoints own the slot.
#pragma once

#include "stream/slots.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/detail/backend.hpp>

#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

struct StreamUse {
  Slot* slot = nullptr;
  std::uint64_t id = 0;
  friend bool operator==(const StreamUse&, const StreamUse&) noexcept = default;
};

[[nodiscard]] inline StreamUse use_of(StreamRef stream) noexcept {
  return {static_cast<Slot*>(Access::slot(stream)), stream.id()};
}

/// Whether points own the slot.
[[nodiscard]] bool has_points(Slot& slot) noexcept;
/// Whether no points own the slot. If some do, the last one calls free_waiting_slot().
[[nodiscard]] bool is_free_of_points(Slot& slot) noexcept;
/// Whether the stream has ended.
[[nodiscard]] inline bool has_ended(StreamUse use) noexcept {
  return use.slot->id.load(std::memory_order_acquire) != use.id;
}

/// Ends a stream: ends all views of the slot, stores an event for the points, destroys the
/// attachments, destroys the native stream if the slot owns it, and frees the slot or leaves it to
/// the remaining Stream objects. Inside a host function only the views end at once, and the end of
/// a borrowed stream stays unknown; the service thread takes the other steps.
void retire_slot(Slot* slot) noexcept;
/// The same for a slot whose native stream other code has destroyed. Nothing can be recorded on it,
/// so its end stays unknown.
void retire_orphaned_slot(Slot* slot) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
