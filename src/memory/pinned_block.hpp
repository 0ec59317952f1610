// SPDX-License-Identifier: Apache-2.0
/// A block of pinned memory, and the streams whose work on it must be complete before it is handed
/// out again.
#pragma once

#include "memory/releaser.hpp"
#include "stream/stream_point.hpp"

#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

struct PinnedShelf;
struct PinnedBlock {
  enum class State {
    in_use,
    idle,     // in its shelf's `idle`: no stream works on it
    pending,  // in its shelf's `pending`: given back, but streams may still work on it
    // in no list: a thread is moving it; or for good, if it will never be known when the streams'
    // work is complete
    between,
  };

  /// Requires: the pool's lock is held. @throws std::bad_alloc
  void add_use(StreamUse use);
  /// Records the points that are open. The block waits until all could be recorded; advance() tries
  /// again.
  void record_uses() noexcept;

  std::uintptr_t begin;
  std::size_t bytes;
  PinnedShelf* shelf;
  State state = State::in_use;
  std::vector<StreamPoint> users{};
  std::size_t prune_at = 16;  // with so many users, those that ended are removed
  PinnedBlock* next = nullptr;
  LateRelease late{};  // once the pool has given the block up
};

}  // namespace runnel::inline RUNNEL_ABI::detail
