// SPDX-License-Identifier: Apache-2.0
/// A stream whose work on some memory must be complete before the memory is used for something else.
#pragma once

#include "stream/uses.hpp"

#include <runnel/native.hpp>

#include <cstdint>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// While the memory is in use, `use` says which stream it is; after that, an event recorded on the stream does.
struct PendingUse {
  StreamUse use;
  native::event event{};
  int device = 0;          // of the event
  std::uint64_t mark = 0;  // instead of an event, for another thread's default stream: see request_mark()
};

enum class Progress { waiting, complete, lost };

/// Records an event for a use that has none yet, or requests a mark. The event takes over from the use.
void record(PendingUse& pending) noexcept;
/// Asks the runtime how far the streams are, and removes those whose answer is known. `lost`: one of the answers will never be known.
[[nodiscard]] Progress advance(std::vector<PendingUse>& uses) noexcept;
/// Whether the runtime will give the answers that are still missing. If not, another thread has to record a mark first, or the runtime
/// fails.
[[nodiscard]] bool will_be_known(const std::vector<PendingUse>& uses) noexcept;
/// Removes the uses of streams that ended and whose work is complete.
void remove_ended(std::vector<PendingUse>& uses) noexcept;
/// Removes all. Requires: the work of the streams is complete.
void remove_all(std::vector<PendingUse>& uses) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
