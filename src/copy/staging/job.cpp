// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/job.hpp"

#include "base/check.hpp"
#include "base/sync.hpp"
#include "copy/streaming_copy.hpp"
#include "copy/user_pages.hpp"

#include <exception>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr std::size_t parts_per_buffer = 16;
constexpr std::size_t smallest_part = std::size_t{64} << 10;
constexpr std::size_t streaming_from = std::size_t{8} << 20;    // to the host: no cache would keep so much for its reader
constexpr std::size_t streaming_up_to = std::size_t{32} << 20;  // to the device: a cache may still hold that much of the source

[[nodiscard]] unsigned char* destination_place(const Job& job, const Piece& piece) noexcept {
  return job.transfer.to + piece.row * job.transfer.to_pitch + piece.column;
}
[[nodiscard]] const unsigned char* source_place(const Job& job, const Piece& piece) noexcept {
  return job.transfer.from + piece.row * job.transfer.from_pitch + piece.column;
}

/// How much of a piece is one part: bytes of a piece of one row, else rows.
[[nodiscard]] std::size_t part_size(const Job& job, const Piece& piece) noexcept {
  const std::size_t bytes = std::max(smallest_part, job.ring.buffer_bytes / parts_per_buffer);
  return piece.rows == 1 ? bytes : std::max<std::size_t>(1, bytes / piece.bytes);
}

/// Whether these rows of user memory can be touched. Touching other pages would end the process.
[[nodiscard]] bool can_touch(Job& job, const Transfer& rows) noexcept {
  using Memory = Job::Memory;
  const PageUse use = page_use(job.direction);
  Memory memory = job.memory.load(std::memory_order_relaxed);
  if (memory == Memory::unseen) {
    const Range all = host_range(job.transfer, job.direction, 0, job.transfer.height);
    memory = look_usable(all, use) ? Memory::plain : Memory::doubtful;
    job.memory.store(memory, std::memory_order_relaxed);
  }
  for (std::size_t row = 0; memory == Memory::doubtful && row < rows.height; ++row)
    if (!populate_pages(host_range(rows, job.direction, row, 1), use)) return false;
  return true;
}

/// Keeps an exception for the stream's next synchronize().
void keep_untouchable(const Job& job) noexcept {
  try {
    if (job.direction == Direction::to_device)
      throw_error(errc::unreadable_source, "copy", "a page of the source cannot be read: was its file truncated, or its permission taken?");
    throw_error(errc::unwritable_destination, "copy",
                "a page of the destination cannot be written: was its file truncated, or its permission taken?");
  } catch (...) {
    keep_failure(&job.stream, job.stream_id, {std::current_exception(), job.label, job.epoch});
  }
}

/// Whether to write past the caches. Measured on an H200's 16 cores with 8 workers. To the host: 89 GB/s instead of 48. To the device: a
/// tenth to a third faster if a cache holds the source, since the device then reads the buffer faster; else 38 GB/s instead of 61.
[[nodiscard]] bool writes_past_caches(const Job& job) noexcept {
  const std::size_t bytes = job.transfer.width * job.transfer.height;
  return job.direction == Direction::to_host ? bytes >= streaming_from : bytes <= streaming_up_to;
}

void move(Job& job, Part part) noexcept {
  Piece piece = job.piece(part.piece);
  const std::size_t start = part_size(job, piece) * part.number;
  unsigned char* buffer = job.ring.buffer(job.first_piece + part.piece);
  if (piece.rows == 1) {
    buffer += start;
    piece.column += start;
    piece.bytes = std::min(part_size(job, piece), piece.bytes - start);
  } else {
    buffer += start * piece.bytes;
    piece.row += start;
    piece.rows = std::min(part_size(job, piece), piece.rows - start);
  }
  const Transfer rows = job.direction == Direction::to_device
                            ? Transfer{buffer, piece.bytes, source_place(job, piece), job.transfer.from_pitch, piece.bytes, piece.rows}
                            : Transfer{destination_place(job, piece), job.transfer.to_pitch, buffer, piece.bytes, piece.bytes, piece.rows};
  if (!can_touch(job, rows))
    keep_untouchable(job);
  else if (rows.height == 1 && writes_past_caches(job))
    copy_streaming(rows.to, rows.from, rows.width);
  else
    copy_rows(rows);
}

}  // namespace

Cut cut_for(const Transfer& transfer, std::size_t buffer_bytes) noexcept {
  if (transfer.width > buffer_bytes) {
    const std::size_t pieces_per_row = (transfer.width + buffer_bytes - 1) / buffer_bytes;
    return {1, pieces_per_row, transfer.height * pieces_per_row};
  }
  const std::size_t rows_per_piece = std::min(buffer_bytes / transfer.width, transfer.height);
  return {rows_per_piece, 1, (transfer.height + rows_per_piece - 1) / rows_per_piece};
}

Job::Job(Slot& of, Direction towards, const Transfer& what, Ring& through)
    : stream{of},
      stream_id{of.id.load(std::memory_order_relaxed)},
      device{of.device},
      epoch{of.completions.load(std::memory_order_relaxed)},
      direction{towards},
      transfer{what},
      ring{through},
      cut{cut_for(what, through.buffer_bytes)},
      count{static_cast<std::uint32_t>(cut.pieces)} {
  unfinished.store(count + 1, std::memory_order_relaxed);
}

Piece Job::piece(std::uint32_t index) const noexcept {
  if (cut.pieces_per_row > 1) {
    const std::size_t column = index % cut.pieces_per_row * ring.buffer_bytes;
    return {index / cut.pieces_per_row, 1, column, std::min(ring.buffer_bytes, transfer.width - column)};
  }
  const std::size_t row = index * cut.rows_per_piece;
  return {row, std::min(cut.rows_per_piece, transfer.height - row), 0, transfer.width};
}

bool Job::is_claimable() const noexcept {
  if (next_piece >= announced.load(std::memory_order_acquire)) return false;
  const std::uint64_t next = first_piece + next_piece;
  if (direction == Direction::to_host) return ring.filled(next).has_reached(Ring::use_of(next));
  // A cancelled job does not wait for its start, because the stream may already wait for its bytes. Its buffer must still be empty.
  const bool is_started = ring.started().has_reached(number) || cancelled.load(std::memory_order_relaxed);
  return is_started && ring.emptied(next).has_reached(Ring::use_of(next) - 1);
}

std::uint32_t part_count(const Job& job, const Piece& piece) noexcept {
  const std::size_t size = part_size(job, piece);
  return static_cast<std::uint32_t>(((piece.rows == 1 ? piece.bytes : piece.rows) + size - 1) / size);
}

void move_unless_cancelled(Job& job, Part part) noexcept {
  job.moving.fetch_add(1, std::memory_order_seq_cst);
  if (!job.cancelled.load(std::memory_order_seq_cst)) move(job, part);
  job.moving.fetch_sub(1, std::memory_order_release);
}

void cancel(Job& job) noexcept {
  job.cancelled.store(true, std::memory_order_seq_cst);
  // Sequentially consistent like the three operations above: either the worker sees the flag, or this thread sees the worker. An acquiring
  // load could come before the store of the flag, and return a number from before the worker began.
  while (job.moving.load(std::memory_order_seq_cst) > 0) sync::yield();
}

backend::status copy_piece(const Job& job, std::uint32_t index, native::stream stream) noexcept {
  const Piece piece = job.piece(index);
  unsigned char* const buffer = job.ring.buffer(job.first_piece + index);
  if (job.direction == Direction::to_device)
    return enqueue_transfer({destination_place(job, piece), job.transfer.to_pitch, buffer, piece.bytes, piece.bytes, piece.rows}, stream);
  return enqueue_transfer({buffer, piece.bytes, source_place(job, piece), job.transfer.from_pitch, piece.bytes, piece.rows}, stream);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
