// SPDX-License-Identifier: Apache-2.0
#include "memory/pending_use.hpp"

#include "base/announce.hpp"
#include "stream/event_pool.hpp"
#include "stream/idle.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

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

namespace {

[[nodiscard]] bool has_ended(StreamUse use) noexcept { return use.slot->id.load(std::memory_order_acquire) != use.id; }

/// How far a stream is that has neither an event for the use nor ended: only a mark can say it.
[[nodiscard]] Progress poll_mark(const PendingUse& pending) noexcept {
  if (pending.mark == 0) return Progress::waiting;
  record_requested_mark(pending.use);
  return is_mark_complete(pending.use, pending.mark) ? Progress::complete : Progress::waiting;
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

}  // namespace

Progress advance(std::vector<PendingUse>& uses) noexcept {
  bool lost = false;
  std::erase_if(uses, [&](PendingUse& pending) {
    const Progress progress = poll(pending);
    lost = lost || progress == Progress::lost;
    return progress != Progress::waiting;
  });
  sync::happens_before(&uses);
  sync::happens_after(&uses);  // other threads may have removed some of them
  return lost ? Progress::lost : uses.empty() ? Progress::complete : Progress::waiting;
}

bool will_be_known(const std::vector<PendingUse>& uses) noexcept {
  return std::ranges::all_of(uses, [](const PendingUse& pending) {
    if (pending.event != nullptr) return will_be_known(pending.event);
    if (!has_ended(pending.use)) return pending.mark != 0 && will_mark_be_known(pending.use, pending.mark);
    const Remainder left = remainder_of(pending.use);
    return left.state != Remainder::State::recorded || will_be_known(left.event);
  });
}

void remove_ended(std::vector<PendingUse>& uses) noexcept {
  std::erase_if(uses, [&](const PendingUse& pending) {
    if (!has_ended(pending.use) || poll_remainder(pending.use) != Remainder::State::complete) return false;
    end_use(pending.use);
    return true;
  });
  sync::happens_before(&uses);
}

void remove_all(std::vector<PendingUse>& uses) noexcept {
  for (const PendingUse& pending : uses) {
    if (pending.event != nullptr)
      return_event(pending.event, pending.device, {});
    else
      end_use(pending.use);
  }
  uses.clear();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
