// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_block.hpp"

#include <algorithm>
#include <utility>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

/// Removes the points of destroyed streams whose work is complete. A block that stays in use for
/// long would otherwise collect them. Requires: the caller holds the pool's lock.
void prune(PinnedBlock& block) noexcept {
  erase_ended_points(block.users);
  block.prune_at = std::max<std::size_t>(16, 2 * block.users.size());
}

}  // namespace

void PinnedBlock::add_use(StreamKey use) {
  const auto same = [&](const Point& point) { return point.stream() == use; };
  if (!users.empty() && same(users.back())) [[likely]]
    return;
  const auto found = std::find_if(users.begin(), users.end(), same);
  if (found != users.end()) return std::swap(*found, users.back());
  if (users.size() >= prune_at) prune(*this);
  users.emplace_back(use);
  // The stream was destroyed meanwhile; the caller's operation will fail.
  if (!users.back()) users.pop_back();
}

void PinnedBlock::record_uses() noexcept {
  for (Point& point : users) point.record();
}

}}}  // namespace runnel::RUNNEL_ABI::detail
