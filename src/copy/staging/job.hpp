// SPDX-License-Identifier: Apache-2.0
/// One staged copy: how it is cut into pieces, and how the parts of a piece are moved between user memory and the buffers of a ring.
#pragma once

#include "base/sync.hpp"
#include "copy/staging/ring.hpp"
#include "copy/transfer.hpp"
#include "stream/host_functions.hpp"
#include "stream/slots.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

/// What goes through a buffer at once: whole rows, or a part of one row where a row is larger than a buffer.
struct Piece {
  std::size_t row, rows, column, bytes;  // `bytes` of each row
};

/// What a worker moves at once: part `number` of a piece. In the buffer the rows of a piece lie end to end.
struct Part {
  std::uint32_t piece;
  std::uint32_t number;
};

/// How a transfer is cut for buffers of one size.
struct Cut {
  std::size_t rows_per_piece;
  std::size_t pieces_per_row;  // more than 1 where a row is cut
  std::size_t pieces;
};
[[nodiscard]] Cut cut_for(const Transfer& transfer, std::size_t buffer_bytes) noexcept;

struct Job {
  Job(Slot& of, Direction towards, const Transfer& what, Ring& through);

  Slot& stream;
  const std::uint64_t stream_id;
  const int device;
  const std::uint64_t label = host_function_label;  // goes with an exception of the copy
  const std::uint64_t epoch;                        // likewise, see Failure
  const Direction direction;
  const Transfer transfer;
  Ring& ring;
  const Cut cut;
  const std::uint32_t count;      // of pieces
  std::uint32_t number = 0;       // of the job among those of its ring and direction
  std::uint64_t first_piece = 0;  // its number within the ring

  // Guarded by StagingWorkers::lock_.
  std::uint32_t next_piece = 0;  // the first piece with parts that no worker has claimed
  std::uint32_t next_part = 0;   // the first of those parts

  sync::Atomic<std::uint32_t> announced{0};   // pieces that workers may claim
  sync::Atomic<std::uint32_t> unfinished{1};  // pieces not yet moved, and 1 for the thread that enqueues; at 0 the job is closed
  sync::Atomic<bool> cancelled{false};        // after a failure: no thread may touch user memory any more
  sync::Atomic<int> moving{0};                // parts that are being moved
  bool stream_waits_for_end = true;           // or may do so; to the host only
  enum class Memory { unseen, plain, doubtful };
  sync::Atomic<Memory> memory{Memory::unseen};  // the user's; doubtful memory is looked at again before each part

  [[nodiscard]] Piece piece(std::uint32_t index) const noexcept;
  /// Whether a worker can move a part of the next piece now. Requires: StagingWorkers::lock_ is held.
  [[nodiscard]] bool is_claimable() const noexcept;
};
using JobPtr = std::shared_ptr<Job>;

/// How many parts a piece has.
[[nodiscard]] std::uint32_t part_count(const Job& job, const Piece& piece) noexcept;
/// Moves one part between user memory and its buffer. If the memory cannot be touched, the stream's next synchronize() throws.
void move_unless_cancelled(Job& job, Part part) noexcept;
/// After the return no thread touches the user's memory: the caller may free it while it handles the exception.
void cancel(Job& job) noexcept;
/// Enqueues the copy of a piece between its buffer and the device.
[[nodiscard]] backend::status copy_piece(const Job& job, std::uint32_t index, native::stream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
