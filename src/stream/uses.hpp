// SPDX-License-Identifier: Apache-2.0
/// A use of a stream, and the end of a stream, which leaves its last event in its slot if points
/// (stream_point.hpp) hold that.
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

/// Whether points hold the slot.
[[nodiscard]] bool has_points(Slot& slot) noexcept;
/// Whether no points hold the slot. If some do, the last one calls free_waiting_slot().
[[nodiscard]] bool is_free_of_points(Slot& slot) noexcept;
/// Whether the stream has ended.
[[nodiscard]] inline bool has_ended(StreamUse use) noexcept {
  return use.slot->id.load(std::memory_order_acquire) != use.id;
}

/// Ends all views of a slot, leaves an event for the uses of its stream, destroys the attachments,
/// destroys the stream if the slot owns it, and frees the slot or lets it rest. Inside a host
/// function only the views end at once, and the end of a borrowed stream stays unknown; the other
/// steps are queued for the next call from another thread.
void retire_slot(Slot* slot) noexcept;
/// The same for a slot whose native stream other code has destroyed: nothing can be recorded on it,
/// so that its end stays unknown.
void retire_lost_slot(Slot* slot) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
