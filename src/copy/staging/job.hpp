// SPDX-License-Identifier: Apache-2.0
/// One staged copy: how it is cut, and the moving of its parts between user memory and the slots of a ring.
#pragma once

#include "copy/staging/ring.hpp"
#include "copy/staging/stage.hpp"
#include "stream/host_functions.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

/// Rows, or a part of one row where a row is larger than a slot.
struct Piece {
  std::size_t row, rows, column, bytes;  // `bytes` of each row
};

/// What a worker moves at a time: part `number` of a piece, between user memory and the piece's slot, where rows lie end to end.
struct Part {
  std::uint32_t piece;
  std::uint32_t number;
};

struct Job {
  Job(Slot& of, Side towards, const Transfer& what, Ring& through);

  Slot& stream;
  const std::uint64_t stream_id;
  const std::uint64_t label = host_function_label;  // of what the copy's failure would be
  const Side side;
  const Transfer transfer;
  Ring& ring;
  std::size_t rows_per_piece = 1;
  std::size_t pieces_per_row = 1;  // more than 1 where a row is cut
  std::uint32_t count = 0;
  std::uint32_t number = 0;  // within its ring, as is:
  std::uint64_t first_piece = 0;

  std::atomic<std::uint32_t> enqueued{0};  // pieces that the stream knows of: workers go no further
  std::uint32_t claimed = 0;               // the first piece with parts that nobody has claimed; guarded by StagingWorkers::lock_,
  std::uint32_t claimed_parts = 0;         // and how many of its parts are claimed
  std::atomic<std::uint32_t> open{1};      // pieces not yet moved, and 1 for the enqueueing thread
  std::atomic<bool> cancelled{false};      // a call failed: user memory must not be touched any more
  std::atomic<int> moving{0};              // parts that are being moved
  bool finishes = true;                    // for the host: whether the stream may wait for the end; false once cancelled before that
  enum class Memory { unseen, plain, doubtful };
  std::atomic<Memory> memory{Memory::unseen};  // of the user's: doubtful is looked at again before each part

  [[nodiscard]] Piece piece(std::uint32_t index) const noexcept {
    if (pieces_per_row > 1) {
      const std::size_t column = index % pieces_per_row * ring.slot_bytes;
      return {index / pieces_per_row, 1, column, std::min(ring.slot_bytes, transfer.width - column)};
    }
    const std::size_t row = index * rows_per_piece;
    return {row, std::min(rows_per_piece, transfer.height - row), 0, transfer.width};
  }
  /// Whether a worker can move a part of the next piece now. StagingWorkers::lock_ is held.
  [[nodiscard]] bool claimable() const noexcept {
    if (claimed >= enqueued.load(std::memory_order_acquire)) return false;
    const std::uint64_t piece = first_piece + claimed;
    if (side == Side::to_host) return ring.filled(piece).reached(Ring::use_of(piece));
    // A cancelled job may never be started, but the stream may wait for its bytes. The slot's earlier use comes first all the same.
    const bool started = ring.started().reached(number) || cancelled.load(std::memory_order_relaxed);
    return started && ring.emptied(piece).reached(Ring::use_of(piece) - 1);
  }
};
using JobPtr = std::shared_ptr<Job>;

/// How many parts a piece has: of rows, or of the bytes of its only row.
[[nodiscard]] std::uint32_t part_count(const Job& job, const Piece& piece) noexcept;
/// The workers' part. What cannot be touched is kept as a failure for the stream's next synchronize.
void move_unless_cancelled(Job& job, Part part) noexcept;
/// On the return nobody touches user memory any more, which the caller's caller may free while he handles the exception.
void cancel(Job& job) noexcept;
/// The stream's part: between the device and the piece's slot.
[[nodiscard]] backend::status copy_piece(const Job& job, std::uint32_t index, native::stream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
