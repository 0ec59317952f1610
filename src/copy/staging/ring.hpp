// SPDX-License-Identifier: Apache-2.0
/// The pinned memory that the pieces of a stream's staged copies go through, and the values that
/// say which pieces are in it.
#pragma once

#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "copy/transfer.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {

/// A number in pinned memory that a stream and the workers read and write. It only grows.
/// Comparisons are cyclic, as the devices' are.
class Value {
 public:
  explicit Value(std::uint32_t* place) noexcept : place_{place} {}
  [[nodiscard]] bool has_reached(std::uint64_t number) const noexcept {
    const std::uint32_t now =
        sync::AtomicRef<std::uint32_t>{*place_}.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(now - static_cast<std::uint32_t>(number)) >= 0;
  }
  void set(std::uint64_t number) const noexcept {
    sync::AtomicRef<std::uint32_t>{*place_}.store(static_cast<std::uint32_t>(number),
                                                  std::memory_order_release);
  }
  [[nodiscard]] std::uint32_t* place() const noexcept { return place_; }

 private:
  std::uint32_t* place_;
};

struct Job;
// a cache line each: workers and devices write them side by side
inline constexpr std::size_t value_distance = 64 / sizeof(std::uint32_t);

/// Memory that one stream uses at a time, from its begin to its end and then again. A piece of a
/// copy takes the next bytes of it. Pieces are numbered, and each value counts pieces or jobs. The
/// values are never freed, because a stream may wait for a value after the host has seen it
/// reached.
struct Ring {
  explicit Ring(std::uint32_t* first_value = nullptr) : values{first_value} {}

  std::uint32_t* values;

  // Guarded by StagingRings::mutex_.
  std::uint64_t owner = 0;  // the id of the stream that uses the ring
  // null: trimmed. Changes only while the ring is unused, as `bytes` does.
  unsigned char* data = nullptr;
  std::size_t bytes = 0;

  // held while a copy is enqueued, so that its pieces follow each other in the stream
  sync::Mutex mutex;
  // numbered so far, to the device and to the host; guarded by mutex
  std::array<std::uint32_t, 2> jobs{};
  // numbered so far; guarded by mutex, but is_unused() may read it once no job is active
  std::uint64_t pieces = 0;

  // with pieces that no worker has claimed, in order; guarded by StagingWorkers::lock_
  std::deque<std::shared_ptr<Job>> unclaimed;

  // bytes of the copies that have followed each other without the ring being unused in between
  sync::Atomic<std::size_t> row{0};
  // jobs whose memory, buffers or values a worker or the stream may still touch
  sync::Atomic<int> active{0};
  // a runtime call failed half way: it is not known what the stream waits for
  sync::Atomic<bool> given_up{false};

  /// Where a piece lies in the ring, and how many pieces must have left the ring before it may be
  /// written.
  struct Place {
    std::size_t offset;
    std::uint64_t emptied;
  };
  /// Takes the next `size` bytes for the next piece, which gets the number `pieces`. Requires:
  /// mutex is held, `size` <= bytes.
  [[nodiscard]] Place place(std::size_t size) noexcept;

  /// Gives the ring its memory, or takes it away. Requires: the ring is unused.
  void set_memory(unsigned char* memory, std::size_t size) noexcept {
    data = memory;
    bytes = size;
    position_ = 0;
    oldest_ = pieces;
  }
  /// How many parts of a piece are to be moved. Requires: fewer than `window` pieces are being
  /// moved, since a worker moves one part.
  [[nodiscard]] sync::Atomic<std::uint32_t>& parts_left(std::uint64_t piece) noexcept {
    return parts_left_[piece % window];
  }
  /// All parts of a piece have been moved. Raises `filled` (to the device) or `emptied` (to the
  /// host) as far as no earlier piece lacks.
  void moved(std::uint64_t piece, Direction direction) noexcept;
  /// The stream itself has passed all pieces before `end`: no worker has moved them.
  void passed(std::uint64_t end) noexcept;

  /// A job that counted as active is over.
  void release() noexcept { active.fetch_sub(1, std::memory_order_acq_rel); }
  /// Reaches the number of a job to the device when the stream has come to that job.
  [[nodiscard]] Value started() const noexcept { return Value{values}; }
  /// Reaches the number of a job to the host when all bytes of that job are in the user's memory.
  [[nodiscard]] Value finished() const noexcept { return Value{values + value_distance}; }
  /// How many pieces have had their bytes in the ring: written by workers for copies to the device,
  /// else by the stream.
  [[nodiscard]] Value filled() const noexcept { return Value{values + value_distance * 2}; }
  /// How many pieces have left the ring: written by the stream for copies to the device, else by
  /// workers.
  [[nodiscard]] Value emptied() const noexcept { return Value{values + value_distance * 3}; }
  static constexpr std::size_t values_bytes = sizeof(std::uint32_t) * value_distance * 4;

  /// Whether all bytes have left the ring, and no job is about to bring more.
  [[nodiscard]] bool is_unused() const noexcept {
    return active.load(std::memory_order_acquire) == 0 && emptied().has_reached(pieces);
  }

 private:
  static constexpr std::size_t window = 256;
  static constexpr std::size_t alignment = 256;

  // Positions count all bytes that were ever taken; the byte at position p lies at p modulo
  // `bytes`. Guarded by mutex.
  std::uint64_t position_ = 0;
  // of the pieces whose bytes may still be in the ring
  std::array<std::uint64_t, window> begins_{};
  std::uint64_t oldest_ = 0;  // the number of the first of them

  enum class Moved : unsigned char { no, to_device, to_host };
  SpinLock moved_lock_;  // guards the next two
  std::array<Moved, window> moved_{};
  std::uint64_t first_unmoved_ = 0;
  std::array<sync::Atomic<std::uint32_t>, window> parts_left_{};
};

inline Ring::Place Ring::place(std::size_t size) noexcept {
  position_ = (position_ + alignment - 1) / alignment * alignment;
  // no piece is divided
  if (const std::size_t offset = position_ % bytes; offset + size > bytes)
    position_ += bytes - offset;
  const std::uint64_t end = position_ + size;
  while (oldest_ < pieces &&
         (begins_[oldest_ % window] + bytes < end || pieces - oldest_ == window))
    ++oldest_;
  begins_[pieces++ % window] = position_;
  const std::size_t offset = position_ % bytes;
  position_ = end;
  return {offset, oldest_};
}

inline void Ring::moved(std::uint64_t piece, Direction direction) noexcept {
  const std::lock_guard lock{moved_lock_};
  moved_[piece % window] = direction == Direction::to_device ? Moved::to_device : Moved::to_host;
  for (Moved* next = nullptr; *(next = &moved_[first_unmoved_ % window]) != Moved::no;
       *next = Moved::no) {
    ++first_unmoved_;
    (*next == Moved::to_device ? filled() : emptied()).set(first_unmoved_);
  }
}

inline void Ring::passed(std::uint64_t end) noexcept {
  const std::lock_guard lock{moved_lock_};
  first_unmoved_ = end;
  emptied().set(end);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
