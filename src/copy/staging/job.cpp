// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/job.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/populate.hpp"
#include "copy/copy_calls.hpp"
#include "copy/staging/cut.hpp"
#include "copy/streaming_copy.hpp"
#include "copy/user_pages.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr size_t parts_per_piece = 16;
constexpr size_t smallest_part = size_t{32} << 10;
// To the host: no cache would hold this much until it is read.
constexpr size_t streaming_from = size_t{8} << 20;
// To the device: a cache may still hold this much of the source.
constexpr size_t streaming_up_to = size_t{32} << 20;
// For fewer bytes the fence at the end costs more than it saves.
constexpr size_t streaming_run = size_t{4} << 10;

size_t part_bytes(const Piece& piece) noexcept {
  const size_t page = page_bytes();
  return std::max(smallest_part, (piece.bytes / parts_per_piece + page - 1) / page * page);
}

/// Splits the work's bytes from `begin` to `begin + bytes` into runs that are contiguous on the
/// host and on the device, and calls `f(host, device, offset, bytes)` for each. `offset` counts
/// from `begin`.
template <class F>
void for_each_run(const Work& work, size_t begin, size_t bytes, F f) {
  const bool to_device = work.direction == Direction::to_device;
  if (work.segments.empty()) {
    const Transfer& t = work.rows;
    size_t row = begin / t.width, column = begin % t.width;
    for (size_t done = 0; done < bytes; ++row, column = 0) {
      const size_t run = std::min(t.width - column, bytes - done);
      unsigned char* const to = t.to + row * t.to_pitch + column;
      // The source is only read.
      auto* const from = const_cast<unsigned char*>(t.from + row * t.from_pitch + column);
      to_device ? f(from, to, done, run) : f(to, from, done, run);
      done += run;
    }
    return;
  }
  // The one that contains the first byte.
  auto segment = std::ranges::upper_bound(work.segments, begin, {}, &Segment::begin) - 1;
  for (size_t done = 0, skip = begin - segment->begin; done < bytes; ++segment, skip = 0) {
    const size_t run = std::min(segment->bytes - skip, bytes - done);
    f(segment->host + skip, segment->device + skip, done, run);
    done += run;
  }
}

/// Whether a thread may access the run of user memory. Access to other pages would end the process.
/// `plain` caches a usable mapping.
bool can_touch(Job& job, Range run, Range& plain) noexcept {
  using Memory = Job::Memory;
  const PageUse use = page_use(job.direction());
  if (!job.work.segments.empty()) return look_usable(run, use, plain) || populate_pages(run, use);
  Memory memory = job.memory.load(std::memory_order_relaxed);
  if (memory == Memory::unseen) {
    memory = look_usable(host_range(job.work.rows, job.direction()), use) ? Memory::plain
                                                                          : Memory::doubtful;
    job.memory.store(memory, std::memory_order_relaxed);
  }
  return memory == Memory::plain || populate_pages(run, use);
}

/// Stores an exception, which the stream's next synchronize() throws.
void keep_untouchable(const Job& job) noexcept {
  try {
    if (job.direction() == Direction::to_device)
      throw_error(
          errc::unreadable_source, "copy",
          "a page of the source cannot be read: was its file truncated, or its permission taken?");
    throw_error(errc::unwritable_destination, "copy",
                "a page of the destination cannot be written: was its file truncated, or its "
                "permission taken?");
  } catch (...) {
    keep_failure(&job.stream, job.stream_id, {std::current_exception(), job.label, job.epoch});
  }
}

void copy_run(const Job& job, unsigned char* to, const unsigned char* from, size_t bytes) noexcept {
  if (job.bypasses_caches && bytes >= streaming_run)
    copy_streaming(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

void move(Job& job, Part part) noexcept {
  const Piece& piece = job.pieces[part.piece];
  const size_t start = part_bytes(piece) * part.number;
  unsigned char* const buffer = job.buffer(part.piece) + start;
  Range plain{};
  for_each_run(job.work, piece.begin + start, std::min(part_bytes(piece), piece.bytes - start),
               [&](unsigned char* host, const unsigned char*, size_t offset, size_t bytes) {
                 if (!can_touch(job, {host, bytes}, plain)) return keep_untouchable(job);
                 job.direction() == Direction::to_device
                     ? copy_run(job, buffer + offset, host, bytes)
                     : copy_run(job, host, buffer + offset, bytes);
               });
}

/// The stream idles while workers move a large piece, unless another piece is ready. So the first
/// pieces of a copy to the device are small, and each is twice as large as the one before, unless
/// the ring still contains pieces of the stream's earlier copies. The last pieces of a copy to the
/// host shrink in the same way, since the stream waits until the last one is in user memory.
[[nodiscard]] std::vector<Piece> cut(const Work& work, const Ring& through, bool may_read_now) {
  const size_t row = through.row.load(std::memory_order_relaxed), bytes = work.bytes();
  const size_t largest = largest_piece(through.bytes, row);
  std::vector<Piece> pieces;
  size_t growing = may_read_now && row > bytes ? largest : smallest_piece;
  for (size_t begin = 0; begin < bytes; begin += pieces.back().bytes) {
    const size_t left = bytes - begin;
    const size_t shrinking = std::max(std::bit_floor(left / 2 + 1), smallest_piece);
    const size_t wanted =
        std::min({left, largest, work.direction == Direction::to_host ? shrinking : growing});
    const size_t size = work.segments.empty() ? fit_rows(work.rows, begin, wanted) : wanted;
    pieces.push_back({begin, size, {}});
    growing = std::min(2 * growing, largest);
  }
  return pieces;
}

/// The writer of the user's memory, from its first to its last byte.
[[nodiscard]] RangeWriter writer_of(const Work& work) noexcept {
  if (work.direction == Direction::to_device) return {};
  if (work.segments.empty()) {
    const Range range = host_range(work.rows, work.direction);
    return {range.begin, range.bytes};
  }
  const unsigned char* begin = work.segments.front().host;
  const unsigned char* end = begin;
  for (const Segment& each : work.segments) {
    begin = std::min<const unsigned char*>(begin, each.host);
    end = std::max<const unsigned char*>(end, each.host + each.bytes);
  }
  return {begin, static_cast<size_t>(end - begin)};
}

/// Whether to write with stores that bypass the caches. Measured with 8 workers on 16 cores beside
/// an H200. To the host: 89 GB/s instead of 48. To the device: a tenth to a third faster if a cache
/// holds the source, since the device then reads the buffer faster; otherwise 38 GB/s instead of
/// 61.
[[nodiscard]] bool bypasses_caches_for(Direction direction, size_t bytes) noexcept {
  return direction == Direction::to_host ? bytes >= streaming_from : bytes <= streaming_up_to;
}

/// Enqueues the copies of a list. `joined`: neighbours on the device become one copy, since they
/// are contiguous in the ring, too.
[[nodiscard]] backend::status copy_segments(const Job& job, const Piece& piece,
                                            unsigned char* buffer, bool joined,
                                            native::stream stream) noexcept {
  CopyCalls calls{stream};
  unsigned char* device = nullptr;
  size_t from = 0, to = 0;  // of the contiguous bytes so far
  const auto enqueue = [&] {
    if (to == from) return;
    const bool to_device = job.direction() == Direction::to_device;
    static_cast<void>(to_device ? calls.add(device, buffer + from, to - from)
                                : calls.add(buffer + from, device, to - from));
  };
  for_each_run(job.work, piece.begin, piece.bytes,
               [&](const unsigned char*, unsigned char* on_device, size_t offset, size_t bytes) {
                 if (!joined || device + (to - from) != on_device) {
                   enqueue();
                   device = on_device;
                   from = offset;
                 }
                 to = offset + bytes;
               });
  enqueue();
  return calls.finish();
}
}  // namespace

void sort_segments(Segments& segments) noexcept {
  std::ranges::sort(segments, {}, &Segment::device);
  size_t begin = 0;
  for (Segment& segment : segments) {
    segment.begin = begin;
    begin += segment.bytes;
  }
}

Job::Job(Slot& of, Work what, Ring& through, bool reads_now)
    : stream{of},
      stream_id{of.id.load(std::memory_order_relaxed)},
      device{of.device},
      epoch{of.timeline.epoch()},
      work{std::move(what)},
      ring{through},
      writer{writer_of(work)},
      may_read_now{reads_now},
      bypasses_caches{
          bypasses_caches_for(work.direction, through.row.load(std::memory_order_relaxed))},
      pieces{cut(work, through, may_read_now)} {
  unfinished.store(count() + 1, std::memory_order_relaxed);
}

void Job::take_numbers() noexcept {
  // Only jobs that wait for their start write its number. If others counted, too, the stream could
  // fall behind so far that the comparison of 32 bits would be wrong.
  if (!may_read_now) number = ++ring.jobs[direction() == Direction::to_host];
  first_piece = ring.pieces;
  for (Piece& piece : pieces) piece.allocation = ring.allocate(piece.bytes);
}

bool Job::is_claimable() const noexcept {
  if (next_piece >= announced.load(std::memory_order_acquire)) return false;
  if (direction() == Direction::to_host)
    return ring.filled().has_reached(first_piece + next_piece + 1);
  // A cancelled job does not wait for its start, because the stream may already wait for its bytes.
  // It must still wait for its part of the ring.
  const bool is_started = may_read_now || ring.started().has_reached(number) ||
                          cancelled.load(std::memory_order_relaxed);
  return is_started && ring.emptied().has_reached(pieces[next_piece].allocation.emptied);
}

uint32_t part_count(const Piece& piece) noexcept {
  const size_t size = part_bytes(piece);
  return static_cast<uint32_t>((piece.bytes + size - 1) / size);
}

void move_unless_cancelled(Job& job, Part part) noexcept {
  job.moving.fetch_add(1, std::memory_order_seq_cst);
  if (const UserAccess access;
      access.is_allowed() && !job.cancelled.load(std::memory_order_seq_cst))
    move(job, part);
  job.moving.fetch_sub(1, std::memory_order_release);
}

void cancel(Job& job) noexcept {
  job.cancelled.store(true, std::memory_order_seq_cst);
  // Sequentially consistent, like the three operations above: either the worker sees the flag, or
  // this thread sees the worker. An acquire load could be reordered before the store of the flag,
  // and miss a worker that has just begun.
  while (job.moving.load(std::memory_order_seq_cst) > 0) sync::yield();
}

backend::status copy_piece(const Job& job, uint32_t index, native::stream stream) noexcept {
  const Piece& piece = job.pieces[index];
  unsigned char* const buffer = job.buffer(index);
  if (!job.work.segments.empty()) {
    // Neighbours may belong to two allocations, which the runtimes refuse to copy in one call. In
    // that case some copies are enqueued twice, which is harmless.
    const backend::status s = copy_segments(job, piece, buffer, true, stream);
    return failed_with(s, errc::invalid_argument) ? copy_segments(job, piece, buffer, false, stream)
                                                  : s;
  }
  const Transfer& t = job.work.rows;
  const size_t row = piece.begin / t.width, column = piece.begin % t.width;
  const size_t width = std::min(piece.bytes, t.width), height = piece.bytes / width;
  if (job.direction() == Direction::to_device)
    return enqueue_transfer(
        {t.to + row * t.to_pitch + column, t.to_pitch, buffer, width, width, height}, stream);
  return enqueue_transfer(
      {buffer, width, t.from + row * t.from_pitch + column, t.from_pitch, width, height}, stream);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
