// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_block.hpp"

#include "base/relaxed_capture.hpp"
#include "stream/event_pool.hpp"
#include "stream/idle.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Records an event for a use, or requests a mark. The event takes over from the use.
void record(PendingUse& pending) noexcept {
  if (pending.event != nullptr || pending.mark != 0) return;
  const HeldStream stream{pending.use};
  if (!stream) return;
  if (!stream.is_reachable()) {
    pending.mark = request_mark(pending.use);
    return;
  }
  pending.event = stream.record(InCapture::never);
  if (pending.event == nullptr) return;
  pending.device = stream.device();
  end_use(pending.use);
}

using Progress = PinnedBlock::Progress;

[[nodiscard]] bool has_ended(StreamUse use) noexcept { return use.slot->id.load(std::memory_order_acquire) != use.id; }

/// How far a stream is that has neither an event for the use nor ended: only a mark can say it.
[[nodiscard]] Progress poll_mark(const PendingUse& pending) noexcept {
  return pending.mark != 0 && is_mark_complete(pending.use, pending.mark) ? Progress::complete : Progress::waiting;
}

/// How far a stream is that has ended.
[[nodiscard]] Progress poll_ended(StreamUse use) noexcept {
  switch (poll_remainder(use)) {
    case Remainder::State::open:
    case Remainder::State::recorded:
      return Progress::waiting;
    case Remainder::State::complete:
      return Progress::complete;
    case Remainder::State::lost:
      break;
  }
  return Progress::lost;
}

/// Ends the use unless the answer is `waiting`.
[[nodiscard]] Progress poll(PendingUse& pending) noexcept {
  record(pending);
  if (pending.event != nullptr) {
    if (!has_happened(pending.event)) return Progress::waiting;
    return_event(pending.event, pending.device, {});
    return Progress::complete;
  }
  const Progress progress = has_ended(pending.use) ? poll_ended(pending.use) : poll_mark(pending);
  if (progress != Progress::waiting) end_use(pending.use);
  return progress;
}

/// Removes the uses of streams that ended, from a block that stays in use while streams come and go. Requires: the pool's lock is held,
/// which calls of the runtime make long; but this is rare.
void prune(PinnedBlock& block) noexcept {
  const RelaxedCapture relaxed;
  std::erase_if(block.uses, [&](const PendingUse& pending) {
    if (!has_ended(pending.use) || poll_remainder(pending.use) != Remainder::State::complete) return false;
    end_use(pending.use);
    return true;
  });
  block.prune_at = std::max<std::size_t>(16, 2 * block.uses.size());
}

}  // namespace

void PinnedBlock::add_use(StreamUse use) {
  const auto same = [&](const PendingUse& pending) { return pending.use == use; };
  if (!uses.empty() && same(uses.back())) [[likely]]
    return;
  const auto found = std::find_if(uses.begin(), uses.end(), same);
  if (found != uses.end()) return std::swap(*found, uses.back());
  if (uses.size() >= prune_at) prune(*this);
  uses.push_back({use});
  if (!begin_use(use)) uses.pop_back();  // the stream was destroyed meanwhile; the caller's operation will fail
}

void PinnedBlock::record_uses() noexcept {
  for (PendingUse& pending : uses) record(pending);
}

Progress PinnedBlock::advance() noexcept {
  bool lost = state == State::lost;
  std::erase_if(uses, [&](PendingUse& pending) {
    const Progress progress = poll(pending);
    lost = lost || progress == Progress::lost;
    return progress != Progress::waiting;
  });
  if (lost) state = State::lost;
  return lost ? Progress::lost : uses.empty() ? Progress::complete : Progress::waiting;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
