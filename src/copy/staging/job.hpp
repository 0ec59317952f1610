// SPDX-License-Identifier: Apache-2.0
/// One staged copy, or one list of copies: how it is cut into pieces, and how threads move the
/// parts of a piece between user memory and a ring.
#pragma once

#include "backend.hpp"
#include "base/sync.hpp"
#include "copy/staging/ring.hpp"
#include "copy/transfer.hpp"
#include "function/host_functions.hpp"
#include "function/host_writers.hpp"
#include "slot/slots.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A copy of a list. `begin` is the offset of its bytes among all bytes of the list.
struct Segment {
  unsigned char* device;
  unsigned char* host;
  size_t bytes;
  size_t begin = 0;
};
/// Copies whose order does not matter, sorted by their device addresses: neighbours become one copy
/// of the device.
using Segments = std::vector<Segment>;

/// What a job copies: the rows of a transfer, or a list. Its bytes are numbered from 0, as if they
/// were contiguous.
struct Work {
  Direction direction;
  Transfer rows{};      // if there is no list
  Segments segments{};  // the list, sorted by sort_segments()
  size_t bytes() const noexcept {
    return segments.empty() ? rows.bytes() : segments.back().begin + segments.back().bytes;
  }
};
/// Sorts the list by device address, and sets `begin`.
void sort_segments(Segments& segments) noexcept;

/// The unit that goes through the ring: bytes of the work, and their range in the ring.
struct Piece {
  size_t begin;
  size_t bytes;
  Ring::Allocation allocation;
};

/// The unit that a worker moves: part `number` of a piece.
struct Part {
  uint32_t piece;
  uint32_t number;
};

struct Job {
  /// Cuts the work into pieces. `reads_now`: nothing ahead in the stream writes the source.
  Job(Slot& of, Work what, Ring& through, bool reads_now);
  /// Takes the next numbers and ranges of the ring. Requires: the caller has locked ring.mutex.
  void take_numbers() noexcept;

  Slot& stream;
  const uint64_t stream_id;
  const int device;
  const uint64_t label = host_function_label;  // for an exception of the copy, see Failure
  const uint64_t epoch;                        // likewise
  const Work work;
  Ring& ring;
  RangeWriter writer;          // of the user's memory; to the host only
  const bool may_read_now;     // workers may read the source at once; to the device only
  const bool bypasses_caches;  // the workers write with stores that bypass the caches
  std::vector<Piece> pieces;
  // Among the jobs of its ring and direction; 0 if it may start at once.
  uint32_t number = 0;
  uint64_t first_piece = 0;  // its number within the ring

  // Guarded by StagingWorkers::lock_.
  uint64_t turn = 0;        // its number in the order of submission
  uint32_t next_piece = 0;  // the first piece with parts that no worker has claimed
  uint32_t next_part = 0;   // the first of those parts

  sync::Atomic<uint32_t> announced{0};  // pieces that workers may claim
  // Pieces that are not moved yet, plus 1 for the thread that enqueues. At 0 the job is closed.
  sync::Atomic<uint32_t> unfinished{1};
  // After a failure: no thread may access user memory any more.
  sync::Atomic<bool> cancelled{false};
  sync::Atomic<int> moving{0};       // parts that threads are moving now
  bool stream_waits_for_end = true;  // or may do so; to the host only
  enum class Memory { unseen, plain, doubtful };
  // The user's rows. Doubtful memory is checked again before each part.
  sync::Atomic<Memory> memory{Memory::unseen};

  Direction direction() const noexcept { return work.direction; }
  uint32_t count() const noexcept { return static_cast<uint32_t>(pieces.size()); }
  [[nodiscard]] unsigned char* buffer(uint32_t index) const noexcept {
    return ring.data + pieces[index].allocation.offset;
  }
  /// Whether a worker can move a part of the next piece now. Requires: the caller has locked
  /// StagingWorkers::lock_.
  bool is_claimable() const noexcept;
};
using JobPtr = std::shared_ptr<Job>;

/// The number of parts of a piece.
uint32_t part_count(const Piece& piece) noexcept;
/// Moves one part between user memory and the ring. If the memory cannot be accessed, the stream's
/// next synchronize() throws.
void move_unless_cancelled(Job& job, Part part) noexcept;
/// After the return no thread accesses the user's memory, so the caller may free it while it
/// handles the exception.
void cancel(Job& job) noexcept;
/// Enqueues the copy of a piece between the ring and the device.
[[nodiscard]] backend::status copy_piece(const Job& job, uint32_t index,
                                         native::stream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
