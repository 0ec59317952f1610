// SPDX-License-Identifier: Apache-2.0
/// What the pieces of one stream's copies travel through: pinned slots, and the numbers by which the stream and the workers know whose turn
/// each slot is.
#pragma once

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {

/// A number in pinned memory that a stream and the workers read and write. It only grows; comparisons are cyclic, as the devices' are.
class Value {
 public:
  explicit Value(std::uint32_t* place) noexcept : place_{place} {}
  [[nodiscard]] bool reached(std::uint32_t number) const noexcept {
    return static_cast<std::int32_t>(std::atomic_ref{*place_}.load(std::memory_order_acquire) - number) >= 0;
  }
  void set(std::uint32_t number) const noexcept { std::atomic_ref{*place_}.store(number, std::memory_order_release); }
  [[nodiscard]] std::uint32_t* place() const noexcept { return place_; }

 private:
  std::uint32_t* place_;
};

inline constexpr std::size_t slots_per_ring = 8;
inline constexpr std::size_t value_distance = 64 / sizeof(std::uint32_t);  // a cache line each: workers and devices write them side by side

/// Pinned memory that one stream uses at a time, in turn. The values stay for good: a stream may wait for one that is long reached.
struct Ring {
  explicit Ring(std::uint32_t* numbers) noexcept : values{numbers} {}

  std::uint32_t* const values;
  unsigned char* data = nullptr;  // of the slots; null: trimmed away. Guarded by StagingRings::mutex_ while nobody uses the ring, as is:
  std::size_t slot_bytes = 0;

  std::mutex mutex;                   // held while a copy is enqueued: its pieces follow each other in the stream
  std::uint64_t owner = 0;            // the id of the stream that uses it; guarded by StagingRings::mutex_
  std::uint32_t jobs = 0;             // enqueued so far; guarded by mutex
  std::uint64_t pieces = 0;           // likewise
  std::atomic<int> active{0};         // jobs whose memory, slots or values somebody may still touch
  std::atomic<bool> given_up{false};  // a call failed half way: what the stream was told of slots and values is not known
  std::array<std::atomic<std::uint32_t>, slots_per_ring> parts_left{};  // of the piece in each slot

  /// A job that counts as active is over.
  void release() noexcept { active.fetch_sub(1, std::memory_order_acq_rel); }
  [[nodiscard]] unsigned char* slot(std::uint64_t piece) const noexcept { return data + piece % slots_per_ring * slot_bytes; }
  /// The stream has come to the job with that number.
  [[nodiscard]] Value started() const noexcept { return Value{values}; }
  /// The job with that number has all its bytes in user memory.
  [[nodiscard]] Value finished() const noexcept { return Value{values + value_distance}; }
  /// The piece's bytes are in its slot.
  [[nodiscard]] Value filled(std::uint64_t piece) const noexcept { return Value{values + value_distance * (2 + piece % slots_per_ring)}; }
  /// The piece's bytes have left its slot.
  [[nodiscard]] Value emptied(std::uint64_t piece) const noexcept {
    return Value{values + value_distance * (2 + slots_per_ring + piece % slots_per_ring)};
  }
  /// Whether all bytes have left the slots, and nobody is about to bring more.
  [[nodiscard]] bool unused() const noexcept {
    if (active.load(std::memory_order_acquire) > 0) return false;
    for (std::uint64_t last = pieces; last > 0 && pieces - last < slots_per_ring; --last)
      if (!emptied(last - 1).reached(use_of(last - 1))) return false;
    return true;
  }
  static constexpr std::size_t values_bytes = sizeof(std::uint32_t) * value_distance * (2 + 2 * slots_per_ring);
  /// What the values of a slot say of its n-th use.
  [[nodiscard]] static std::uint32_t use_of(std::uint64_t piece) noexcept { return static_cast<std::uint32_t>(piece / slots_per_ring + 1); }
};

}  // namespace runnel::inline RUNNEL_ABI::detail
