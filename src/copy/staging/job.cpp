// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/job.hpp"

#include "base/check.hpp"
#include "copy/streaming_copy.hpp"

#include <exception>
#include <thread>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr std::size_t parts_per_slot = 16;
constexpr std::size_t smallest_part = std::size_t{64} << 10;
constexpr std::size_t streaming_from = std::size_t{8} << 20;    // copies to the host that no cache would keep for its reader
constexpr std::size_t streaming_up_to = std::size_t{32} << 20;  // copies to the device whose source a cache may still have

[[nodiscard]] unsigned char* destination_place(const Job& job, const Piece& piece) noexcept {
  return job.transfer.to + piece.row * job.transfer.to_pitch + piece.column;
}
[[nodiscard]] const unsigned char* source_place(const Job& job, const Piece& piece) noexcept {
  return job.transfer.from + piece.row * job.transfer.from_pitch + piece.column;
}

/// In rows, or in the bytes of the only row.
[[nodiscard]] std::size_t part_size(const Job& job, const Piece& piece) noexcept {
  const std::size_t bytes = std::max(smallest_part, job.ring.slot_bytes / parts_per_slot);
  return piece.rows == 1 ? bytes : std::max<std::size_t>(1, bytes / piece.bytes);
}

/// Whether these rows of user memory can be touched without the process being ended for it.
[[nodiscard]] bool can_touch(Job& job, const Transfer& rows) noexcept {
  using Memory = Job::Memory;
  const Purpose purpose = purpose_of(job.side);
  Memory memory = job.memory.load(std::memory_order_relaxed);
  if (memory == Memory::unseen) {
    const HostBytes all = host_bytes(job.transfer, job.side, 0, job.transfer.height);
    memory = surely_usable(all.begin, all.bytes, purpose) ? Memory::plain : Memory::doubtful;
    job.memory.store(memory, std::memory_order_relaxed);
  }
  for (std::size_t row = 0; memory == Memory::doubtful && row < rows.height; ++row) {
    const HostBytes one = host_bytes(rows, job.side, row, 1);
    if (!fetched(one.begin, one.bytes, purpose)) return false;
  }
  return true;
}

/// For the stream's next synchronize.
void keep_untouchable(const Job& job) noexcept {
  try {
    if (job.side == Side::to_device)
      throw_error(errc::unreadable_source, "copy", "a page of the source cannot be read: was its file truncated, or its permission taken?");
    throw_error(errc::unwritable_destination, "copy",
                "a page of the destination cannot be written: was its file truncated, or its permission taken?");
  } catch (...) {
    keep_failure(&job.stream, job.stream_id, std::current_exception(), job.label);
  }
}

/// Whether to write past the caches. Measured on an H200's 16 cores with 8 workers: to user memory 89 instead of 48 GB/s; into slots from a
/// source that is in no cache 38 instead of 61, but a tenth to a third more from one that is, since devices read such a slot faster.
[[nodiscard]] bool past_caches(const Job& job) noexcept {
  const std::size_t bytes = job.transfer.width * job.transfer.height;
  return job.side == Side::to_host ? bytes >= streaming_from : bytes <= streaming_up_to;
}

void move(Job& job, Part part) noexcept {
  Piece piece = job.piece(part.piece);
  const std::size_t start = part_size(job, piece) * part.number;
  unsigned char* slot = job.ring.slot(job.first_piece + part.piece);
  if (piece.rows == 1) {
    slot += start;
    piece.column += start;
    piece.bytes = std::min(part_size(job, piece), piece.bytes - start);
  } else {
    slot += start * piece.bytes;
    piece.row += start;
    piece.rows = std::min(part_size(job, piece), piece.rows - start);
  }
  const Transfer rows = job.side == Side::to_device
                            ? Transfer{slot, piece.bytes, source_place(job, piece), job.transfer.from_pitch, piece.bytes, piece.rows}
                            : Transfer{destination_place(job, piece), job.transfer.to_pitch, slot, piece.bytes, piece.bytes, piece.rows};
  if (!can_touch(job, rows))
    keep_untouchable(job);
  else if (rows.height == 1 && past_caches(job))
    copy_streaming(rows.to, rows.from, rows.width);
  else
    move_rows(rows);
}

}  // namespace

Job::Job(Slot& of, Side towards, const Transfer& what, Ring& through)
    : stream{of}, stream_id{of.id.load(std::memory_order_relaxed)}, side{towards}, transfer{what}, ring{through} {
  if (transfer.width > ring.slot_bytes)
    pieces_per_row = (transfer.width + ring.slot_bytes - 1) / ring.slot_bytes;
  else
    rows_per_piece = std::min(ring.slot_bytes / transfer.width, transfer.height);
  count = static_cast<std::uint32_t>(pieces_per_row > 1 ? transfer.height * pieces_per_row
                                                        : (transfer.height + rows_per_piece - 1) / rows_per_piece);
  open.store(count + 1, std::memory_order_relaxed);
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
  while (job.moving.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

backend::status copy_piece(const Job& job, std::uint32_t index, native::stream stream) noexcept {
  const Piece piece = job.piece(index);
  unsigned char* const slot = job.ring.slot(job.first_piece + index);
  const bool to_device = job.side == Side::to_device;
  void* const to = to_device ? destination_place(job, piece) : slot;
  const void* const from = to_device ? slot : source_place(job, piece);
  if (piece.rows == 1) return backend::copy_async(to, from, piece.bytes, stream);
  return backend::copy_2d_async(to, to_device ? job.transfer.to_pitch : piece.bytes, from,
                                to_device ? piece.bytes : job.transfer.from_pitch, piece.bytes, piece.rows, stream);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
