// SPDX-License-Identifier: Apache-2.0
/// The pinned memory that the pieces of a stream's staged copies go through, and the values that
/// count the pieces in it.
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
/// Comparisons are cyclic, like those of the devices.
class Value {
 public:
  explicit Value(uint32_t* address) noexcept : address_{address} {}
  bool has_reached(uint64_t number) const noexcept {
    const uint32_t now = sync::AtomicRef<uint32_t>{*address_}.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(now - static_cast<uint32_t>(number)) >= 0;
  }
  void set(uint64_t number) const noexcept {
    sync::AtomicRef<uint32_t>{*address_}.store(static_cast<uint32_t>(number),
                                               std::memory_order_release);
  }
  [[nodiscard]] uint32_t* address() const noexcept { return address_; }

 private:
  uint32_t* address_;
};

struct Job;
// A cache line each, because workers and devices write them concurrently.
inline constexpr size_t value_distance = 64 / sizeof(uint32_t);

/// A ring buffer that one stream uses at a time. Each piece of a copy takes the next bytes of it.
/// Pieces are numbered, and each value counts pieces or jobs. The values are never freed, because a
/// stream may still wait for a value after the host has seen that the value is reached.
struct Ring {
  explicit Ring(uint32_t* first_value = nullptr) : values{first_value} {}

  uint32_t* values;

  // Guarded by StagingRings::mutex_.
  uint64_t owner = 0;  // the id of the stream that uses the ring
  // Null if trimmed. Changes only while the ring is unused, like `bytes`.
  unsigned char* data = nullptr;
  size_t bytes = 0;

  // Locked while a copy is enqueued, so that its pieces follow each other in the stream.
  sync::Mutex mutex;
  // Numbered so far, to the device and to the host. Guarded by mutex.
  std::array<uint32_t, 2> jobs{};
  // Numbered so far. Guarded by mutex, but is_unused() may read it once no job is active.
  uint64_t pieces = 0;

  // The jobs with pieces that no worker has claimed, in order. Guarded by StagingWorkers::lock_.
  std::deque<std::shared_ptr<Job>> unclaimed;

  // Bytes of the copies in a row: those enqueued since the ring was last unused.
  sync::Atomic<size_t> row{0};
  // Jobs whose memory, buffers or values a worker or the stream may still access.
  sync::Atomic<int> active{0};
  // A runtime call has failed half way, so that it is unknown what the stream waits for.
  sync::Atomic<bool> given_up{false};

  /// The bytes of a piece: their offset in the ring, and the number of pieces that must have left
  /// the ring before these bytes may be overwritten.
  struct Allocation {
    size_t offset;
    uint64_t emptied;
  };
  /// Takes the next `size` bytes for the next piece, whose number is `pieces`. Requires: the caller
  /// has locked mutex, `size` <= bytes.
  [[nodiscard]] Allocation allocate(size_t size) noexcept;

  /// Sets the memory of the ring, or null. Requires: the ring is unused.
  void set_memory(unsigned char* memory, size_t size) noexcept {
    data = memory;
    bytes = size;
    position_ = 0;
    oldest_ = pieces;
  }
  /// The number of parts of a piece that are not moved yet. Requires: fewer than `window` pieces
  /// are being moved, which the number of workers guarantees.
  [[nodiscard]] sync::Atomic<uint32_t>& parts_left(uint64_t piece) noexcept {
    return parts_left_[piece % window];
  }
  /// Call it when all parts of a piece have been moved. Raises `filled` (to the device) or
  /// `emptied` (to the host) up to the first piece that is not moved yet.
  void note_moved(uint64_t piece, Direction direction) noexcept;
  /// Call it when the stream itself has completed all pieces before `end`, without workers.
  void note_completed(uint64_t end) noexcept;

  /// Ends a job that counted as active.
  void release() noexcept { active.fetch_sub(1, std::memory_order_acq_rel); }
  /// Reaches the number of a job to the device when the stream reaches that job.
  [[nodiscard]] Value started() const noexcept { return Value{values}; }
  /// Reaches the number of a job to the host when all bytes of that job are in user memory.
  Value finished() const noexcept { return Value{values + value_distance}; }
  /// The number of pieces whose bytes have arrived in the ring. Workers write it for copies to the
  /// device, the stream for copies to the host.
  Value filled() const noexcept { return Value{values + value_distance * 2}; }
  /// The number of pieces that have left the ring. The stream writes it for copies to the device,
  /// workers for copies to the host.
  Value emptied() const noexcept { return Value{values + value_distance * 3}; }
  static constexpr size_t values_bytes = sizeof(uint32_t) * value_distance * 4;

  /// Whether all bytes have left the ring, and no job will add more.
  bool is_unused() const noexcept {
    return active.load(std::memory_order_acquire) == 0 && emptied().has_reached(pieces);
  }

 private:
  static constexpr size_t window = 256;
  static constexpr size_t alignment = 256;

  // Positions count all bytes that were ever allocated. The byte at position p has the offset p
  // modulo `bytes`. Guarded by mutex.
  uint64_t position_ = 0;
  // The positions of the pieces whose bytes may still be in the ring.
  std::array<uint64_t, window> begins_{};
  uint64_t oldest_ = 0;  // the number of the first of these pieces

  enum class Moved : unsigned char { no, to_device, to_host };
  SpinLock moved_lock_;  // guards the next two
  std::array<Moved, window> moved_{};
  uint64_t first_unmoved_ = 0;
  std::array<sync::Atomic<uint32_t>, window> parts_left_{};
};

inline Ring::Allocation Ring::allocate(size_t size) noexcept {
  position_ = (position_ + alignment - 1) / alignment * alignment;
  // A piece is contiguous.
  if (const size_t offset = position_ % bytes; offset + size > bytes) position_ += bytes - offset;
  const uint64_t end = position_ + size;
  while (oldest_ < pieces &&
         (begins_[oldest_ % window] + bytes < end || pieces - oldest_ == window))
    ++oldest_;
  begins_[pieces++ % window] = position_;
  const size_t offset = position_ % bytes;
  position_ = end;
  return {offset, oldest_};
}

inline void Ring::note_moved(uint64_t piece, Direction direction) noexcept {
  const std::lock_guard lock{moved_lock_};
  moved_[piece % window] = direction == Direction::to_device ? Moved::to_device : Moved::to_host;
  for (Moved* next = nullptr; *(next = &moved_[first_unmoved_ % window]) != Moved::no;
       *next = Moved::no) {
    ++first_unmoved_;
    (*next == Moved::to_device ? filled() : emptied()).set(first_unmoved_);
  }
}

inline void Ring::note_completed(uint64_t end) noexcept {
  const std::lock_guard lock{moved_lock_};
  first_unmoved_ = end;
  emptied().set(end);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
