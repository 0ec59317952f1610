// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_block.hpp"

#include "base/relaxed_capture.hpp"
#include "stream/event_pool.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

void record(PendingUse& pending) noexcept {
  if (pending.event != nullptr || pending.mark != 0) return;
  const HeldStream stream{pending.use};
  if (!stream) return;
  if (!stream.is_reachable()) {
    pending.mark = want_mark(pending.use);
    return;
  }
  pending.event = stream.record(InCapture::never);
  if (pending.event == nullptr) return;
  pending.device = stream.device();
  end_use(pending.use);
}

using Progress = PinnedBlock::Progress;

[[nodiscard]] Progress progress_of(PendingUse& pending) noexcept {
  record(pending);
  if (pending.event != nullptr) {
    if (const backend::status s = backend::event_query(pending.event); s != backend::ok) {
      backend::forget_error(s);
      return Progress::waiting;
    }
    return_event(pending.event, pending.device, {});
    return Progress::passed;
  }
  if (pending.use.slot->id.load(std::memory_order_acquire) == pending.use.id) {
    if (pending.mark == 0 || !has_passed_mark(pending.use, pending.mark)) return Progress::waiting;
    end_use(pending.use);
    return Progress::passed;
  }
  switch (poll_remainder(pending.use)) {
    case Remainder::State::open:
    case Remainder::State::recorded:
      return Progress::waiting;
    case Remainder::State::passed:
      end_use(pending.use);
      return Progress::passed;
    case Remainder::State::lost:
      break;
  }
  end_use(pending.use);
  return Progress::lost;
}

/// Drops uses of streams that are over, of a block that stays in use while streams come and go. The lock is held: this is rare.
void prune(PinnedBlock& block) noexcept {
  const RelaxedCapture relaxed;
  std::erase_if(block.uses, [&](const PendingUse& pending) {
    if (pending.use.slot->id.load(std::memory_order_acquire) == pending.use.id) return false;
    if (poll_remainder(pending.use) != Remainder::State::passed) return false;
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
  if (!begin_use(use)) uses.pop_back();  // the stream was destroyed meanwhile; the operation will say so
}

void PinnedBlock::record_uses() noexcept {
  for (PendingUse& pending : uses) record(pending);
}

Progress PinnedBlock::advance() noexcept {
  bool lost = state == State::lost;
  std::erase_if(uses, [&](PendingUse& pending) {
    const Progress progress = progress_of(pending);
    lost = lost || progress == Progress::lost;
    return progress != Progress::waiting;
  });
  if (lost) state = State::lost;
  return lost ? Progress::lost : uses.empty() ? Progress::passed : Progress::waiting;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
