// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_block.hpp"

#include "base/relaxed_capture.hpp"

#include <algorithm>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Removes the uses of streams that ended, from a block that stays in use while streams come and go. Requires: the pool's lock is held,
/// which calls of the runtime make long; but this is rare.
void prune(PinnedBlock& block) noexcept {
  const RelaxedCapture relaxed;
  remove_ended(block.uses);
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
  const Progress progress = detail::advance(uses);
  if (progress == Progress::lost) state = State::lost;
  return state == State::lost ? Progress::lost : progress;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
