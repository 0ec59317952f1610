// SPDX-License-Identifier: Apache-2.0
/// A block of pinned memory, and the streams that it waits for before it is handed out again.
#pragma once

#include "stream/uses.hpp"

#include <runnel/native.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A stream that a block waits for: first by name, then, since the block was given back, by an event recorded on the stream.
struct PendingUse {
  StreamUse use;
  native::event event{};
  int device = 0;          // of the event
  std::uint64_t mark = 0;  // of another thread's default stream, instead of an event: see want_mark()
};

struct PinnedShelf;
struct PinnedBlock {
  enum class State {
    in_use,
    idle,     // in its shelf's `idle`
    pending,  // in its shelf's `pending`: given back, not yet passed by all streams
    between,  // in nobody's list: a thread is at it
    lost,     // nobody will know when it has been passed, so it is never handed out again
  };
  enum class Progress { waiting, passed, lost };

  /// The pool's lock is held.
  void add_use(StreamUse use);
  /// Records an event for each use that has none yet. One that could not be recorded is tried again: until then the block waits.
  void record_uses() noexcept;
  /// Asks the runtime how far the streams are. The block is in no list.
  [[nodiscard]] Progress advance() noexcept;

  std::uintptr_t begin;
  std::size_t bytes;
  PinnedShelf* shelf;
  State state = State::in_use;
  std::vector<PendingUse> uses{};
  std::size_t prune_at = 16;  // so many uses are looked through for streams that are over
  PinnedBlock* next = nullptr;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
