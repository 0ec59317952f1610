// SPDX-License-Identifier: Apache-2.0
/// The pinned buffers that the pieces of one stream's copies go through, and the counters that say whether a buffer is full or empty.
#pragma once

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// A number in pinned memory that a stream and the workers read and write. It only grows. Comparisons are cyclic, as the devices' are.
class Value {
 public:
  explicit Value(std::uint32_t* place) noexcept : place_{place} {}
  [[nodiscard]] bool has_reached(std::uint32_t number) const noexcept {
    return static_cast<std::int32_t>(sync::AtomicRef<std::uint32_t>{*place_}.load(std::memory_order_acquire) - number) >= 0;
  }
  void set(std::uint32_t number) const noexcept { sync::AtomicRef<std::uint32_t>{*place_}.store(number, std::memory_order_release); }
  [[nodiscard]] std::uint32_t* place() const noexcept { return place_; }

 private:
  std::uint32_t* place_;
};

inline constexpr std::size_t buffers_per_ring = 8;
inline constexpr std::size_t value_distance = 64 / sizeof(std::uint32_t);  // a cache line each: workers and devices write them side by side

/// Buffers that one stream uses at a time, in turn: piece n of the ring goes through buffer n modulo buffers_per_ring. The values are never
/// freed, because a stream may wait for a value after the host has seen it reached.
struct Ring {
  explicit Ring(std::uint32_t* first_value) noexcept : values{first_value} {}

  std::uint32_t* const values;

  // Guarded by StagingRings::mutex_.
  std::uint64_t owner = 0;        // the id of the stream that uses the ring
  unsigned char* data = nullptr;  // of the buffers; null: trimmed. Changes only while the ring is unused, as buffer_bytes does.
  std::size_t buffer_bytes = 0;

  sync::Mutex mutex;                    // held while a copy is enqueued, so that its pieces follow each other in the stream
  std::array<std::uint32_t, 2> jobs{};  // numbered so far, to the device and to the host; guarded by mutex
  std::uint64_t pieces = 0;             // numbered so far; guarded by mutex, but is_unused() may read it once no job is active

  sync::Atomic<int> active{0};         // jobs whose memory, buffers or values a worker or the stream may still touch
  sync::Atomic<bool> given_up{false};  // a runtime call failed half way: it is not known what the stream waits for
  std::array<sync::Atomic<std::uint32_t>, buffers_per_ring> parts_left{};  // of the piece in each buffer

  /// A job that counted as active is over.
  void release() noexcept { active.fetch_sub(1, std::memory_order_acq_rel); }
  [[nodiscard]] unsigned char* buffer(std::uint64_t piece) const noexcept { return data + piece % buffers_per_ring * buffer_bytes; }
  /// Reaches the number of a job to the device when the stream has come to that job.
  [[nodiscard]] Value started() const noexcept { return Value{values}; }
  /// Reaches the number of a job to the host when all bytes of that job are in the user's memory.
  [[nodiscard]] Value finished() const noexcept { return Value{values + value_distance}; }
  /// Reaches use_of(piece) when the piece's bytes are in its buffer.
  [[nodiscard]] Value filled(std::uint64_t piece) const noexcept { return Value{values + value_distance * (2 + piece % buffers_per_ring)}; }
  /// Reaches use_of(piece) when the piece's bytes have left its buffer.
  [[nodiscard]] Value emptied(std::uint64_t piece) const noexcept {
    return Value{values + value_distance * (2 + buffers_per_ring + piece % buffers_per_ring)};
  }
  /// Whether all bytes have left the buffers, and no job is about to bring more.
  [[nodiscard]] bool is_unused() const noexcept {
    if (active.load(std::memory_order_acquire) > 0) return false;
    for (std::uint64_t last = pieces; last > 0 && pieces - last < buffers_per_ring; --last)
      if (!emptied(last - 1).has_reached(use_of(last - 1))) return false;
    return true;
  }
  static constexpr std::size_t values_bytes = sizeof(std::uint32_t) * value_distance * (2 + 2 * buffers_per_ring);
  /// Counts the uses of a piece's buffer, this piece's included.
  [[nodiscard]] static std::uint32_t use_of(std::uint64_t piece) noexcept {
    return static_cast<std::uint32_t>(piece / buffers_per_ring + 1);
  }
};

}  // namespace runnel::inline RUNNEL_ABI::detail
