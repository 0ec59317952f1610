// SPDX-License-Identifier: Apache-2.0
/// One staged copy, or one list of copies: how it is cut into pieces, and how the parts of a piece
/// are moved between user memory and a ring.
#pragma once

#include "base/sync.hpp"
#include "copy/staging/ring.hpp"
#include "copy/transfer.hpp"
#include "stream/host_functions.hpp"
#include "stream/slots.hpp"

#include <runnel/detail/backend.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A copy of a list. `begin` is where its bytes begin if those of the whole list lie end to end.
struct Segment {
  unsigned char* device;
  unsigned char* host;
  std::size_t bytes;
  std::size_t begin = 0;
};
/// Copies without order among themselves, sorted by their address on the device: neighbours there
/// become one copy of the device.
using Segments = std::vector<Segment>;

/// What a job copies: the rows of a transfer, or a list. Its bytes are counted from 0, as if they
/// lay end to end.
struct Work {
  Direction direction;
  Transfer rows{};      // if there is no list
  Segments segments{};  // sorted by sort_segments()
  [[nodiscard]] std::size_t bytes() const noexcept {
    return segments.empty() ? rows.bytes() : segments.back().begin + segments.back().bytes;
  }
};
/// Sorts the list by device address, and sets `begin`.
void sort_segments(Segments& segments) noexcept;

/// What goes through the ring at once: bytes of the work, and where they lie in the ring.
struct Piece {
  std::size_t begin;
  std::size_t bytes;
  Ring::Place place;
};

/// What a worker moves at once: part `number` of a piece.
struct Part {
  std::uint32_t piece;
  std::uint32_t number;
};

struct Job {
  /// Cuts the work into pieces. `starts_now`: nothing ahead in the stream writes the source.
  Job(Slot& of, Work what, Ring& through, bool starts_now);
  /// Takes the next numbers and places of the ring. Requires: ring.mutex is held.
  void take_numbers() noexcept;

  Slot& stream;
  const std::uint64_t stream_id;
  const int device;
  const std::uint64_t label = host_function_label;  // goes with an exception of the copy
  const std::uint64_t epoch;                        // likewise, see Failure
  const Work work;
  Ring& ring;
  const bool may_start;    // workers may read the source at once; to the device only
  const bool past_caches;  // the workers write past the caches
  std::vector<Piece> pieces;
  std::uint32_t number = 0;       // of the job among those of its ring and direction
  std::uint64_t first_piece = 0;  // its number within the ring

  // Guarded by StagingWorkers::lock_.
  std::uint64_t turn = 0;        // the order of submission
  std::uint32_t next_piece = 0;  // the first piece with parts that no worker has claimed
  std::uint32_t next_part = 0;   // the first of those parts

  sync::Atomic<std::uint32_t> announced{0};  // pieces that workers may claim
  // pieces not yet moved, and 1 for the thread that enqueues; at 0 the job is closed
  sync::Atomic<std::uint32_t> unfinished{1};
  // after a failure: no thread may touch user memory any more
  sync::Atomic<bool> cancelled{false};
  sync::Atomic<int> moving{0};       // parts that are being moved
  bool stream_waits_for_end = true;  // or may do so; to the host only
  enum class Memory { unseen, plain, doubtful };
  // the user's rows; doubtful memory is looked at again before each part
  sync::Atomic<Memory> memory{Memory::unseen};

  [[nodiscard]] Direction direction() const noexcept { return work.direction; }
  [[nodiscard]] std::uint32_t count() const noexcept {
    return static_cast<std::uint32_t>(pieces.size());
  }
  [[nodiscard]] unsigned char* buffer(std::uint32_t index) const noexcept {
    return ring.data + pieces[index].place.offset;
  }
  /// Whether a worker can move a part of the next piece now. Requires: StagingWorkers::lock_ is
  /// held.
  [[nodiscard]] bool is_claimable() const noexcept;
};
using JobPtr = std::shared_ptr<Job>;

/// How many parts a piece has.
[[nodiscard]] std::uint32_t part_count(const Piece& piece) noexcept;
/// Moves one part between user memory and the ring. If the memory cannot be touched, the stream's
/// next synchronize() throws.
void move_unless_cancelled(Job& job, Part part) noexcept;
/// After the return no thread touches the user's memory: the caller may free it while it handles
/// the exception.
void cancel(Job& job) noexcept;
/// Enqueues the copy of a piece between the ring and the device.
[[nodiscard]] backend::status copy_piece(const Job& job, std::uint32_t index,
                                         native::stream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
