// SPDX-License-Identifier: Apache-2.0
/// A block of pinned memory, and the streams whose work on it must be complete before it is reused.
#pragma once

#include "memory/releaser.hpp"
#include "stream/stream_point.hpp"

#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

struct PinnedShelf;
struct PinnedBlock : Deferred {
  enum class State {
    in_use,
    idle,     // In its shelf's `idle`: no stream uses it.
    pending,  // In its shelf's `pending`: deallocated, but streams may still use it.
    // In no list: a thread is moving it, or it is leaked because the completion of the streams'
    // work can never be determined.
    detached,
  };

  /// Requires: the caller holds the pool's lock. @throws std::bad_alloc
  void add_use(StreamKey use);
  /// Records the open points. Points that cannot be recorded now are recorded later by advance().
  void record_uses() noexcept;

  std::uintptr_t begin;
  std::size_t bytes;
  PinnedShelf* shelf;
  State state = State::in_use;
  std::vector<StreamPoint> users{};
  // Of two blocks that a stream used, the one with the greater number is complete later. Set by
  // record_uses().
  std::uint64_t number = 0;
  std::size_t prune_at = 16;  // With this many users, prune() runs.
};

}}}  // namespace runnel::RUNNEL_ABI::detail
