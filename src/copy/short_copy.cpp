// SPDX-License-Identifier: Apache-2.0
#include "copy/short_copy.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "base/try_flag.hpp"
#include "copy/route.hpp"
#include "copy/staging/ring.hpp"
#include "copy/streaming_copy.hpp"
#include "copy/user_pages.hpp"
#include "device/device_table.hpp"
#include "memory/pinned_pool.hpp"
#include "stream/idle.hpp"

#include <runnel/memory.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// An H200 copies 256 KiB to the host in 11 us. Beside other streams' copies to the host it takes as
// long as those do, and the caller must not wait for them.
constexpr auto patience = 30us;
// A stream that works through the ring passes the next mark within this time.
constexpr auto patience_for_room = 300us;
// Copies larger than `alone_up_to` are in a row if they follow each other within this time. Several
// workers then move more bytes than this thread alone.
constexpr auto row_gap = 100us;
constexpr std::size_t alone_up_to = std::size_t{64} << 10;
// The device copies one piece to the host while the thread moves the one before.
constexpr std::size_t piece_bytes = std::size_t{64} << 10;
// Pages of sources up to this size are not checked: the check would take as long as the copy.
constexpr std::size_t unchecked_up_to = std::size_t{32} << 10;
// Smaller copies do not bypass the caches: the fence at the end costs more than it saves.
constexpr std::size_t streamed_from = std::size_t{16} << 10;

// The ring's memory is counted in lines. Its last line holds the value.
constexpr std::size_t line = 64;
constexpr std::size_t memory_bytes = std::size_t{4} << 20;
constexpr std::uint64_t ring_lines = memory_bytes / line - 1;
// A copy to a device that is the last of so many lines announces them.
constexpr std::uint64_t lines_per_mark = ring_lines / 16;

/// Calls `is_done` until it returns true, for a short time. Returns whether it did.
template <class Question>
[[nodiscard]] bool happens_soon(Clock::time_point deadline, Question is_done) {
  while (!is_done())
    if (Clock::now() >= deadline) return false;
  return true;
}

/// The pinned memory of one stream. Positions count all lines that were ever taken. The stream
/// writes the position that it has passed into the value: not after each copy, because that would
/// be a second runtime call.
class ShortRing {
 public:
  sync::Atomic<bool> locked{false};          // by a thread; only that thread uses what follows
  sync::Atomic<std::uint64_t> stream_id{0};  // the stream that owns the memory; 0: none

  /// Makes the ring one of the stream. False if there is no memory.
  [[nodiscard]] bool own(StreamKey stream) try {
    if (stream_id.load(std::memory_order_relaxed) == stream.id) [[likely]]
      return true;
    give_back();
    memory_ = PinnedBuffer<unsigned char>{memory_bytes};
    count_down(counters.pinned_blocks);  // live_objects() counts the blocks of users only
    // The pool hands the memory out again when the stream has passed.
    static_cast<void>(note_pinned_use(memory_.data(), memory_bytes, stream));
    restart();
    value().set(0);
    are_copies_prompt = true;
    stream_id.store(stream.id, std::memory_order_relaxed);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  void give_back() noexcept {
    stream_id.store(0, std::memory_order_relaxed);
    if (memory_.empty()) return;
    count_up(counters.pinned_blocks);
    memory_ = {};
  }

  /// Takes contiguous memory. If the stream still uses it, waits for a short time, but not twice
  /// for a stream that does not move on. Null if there is no room.
  [[nodiscard]] unsigned char* take(const CopyCall& call, std::size_t bytes) {
    const std::uint64_t lines = (bytes + line - 1) / line;
    std::uint64_t begin = taken_;
    if (begin % ring_lines + lines > ring_lines) begin += ring_lines - begin % ring_lines;
    const std::uint64_t end = begin + lines;
    if (end > ring_lines && !has_passed(end - ring_lines)) {
      announce(call, 1);
      if (!has_passed(stuck_before_)) return nullptr;
      if (!happens_soon(Clock::now() + patience_for_room,
                        [&] { return has_passed(end - ring_lines); })) {
        stuck_before_ = end - ring_lines;
        return nullptr;
      }
    }
    taken_ = end;
    return memory_.data() + begin % ring_lines * line;
  }
  /// All memory is free. Requires: the stream is idle, and never writes the value.
  void restart() noexcept {
    taken_ = 0;
    announced_ = 0;
    stuck_before_ = 0;
  }
  /// Enqueues a write of the position, if the last one lies at least `lines` behind.
  void announce(const CopyCall& call, std::uint64_t lines) {
    if (taken_ - announced_ < lines) return;
    announced_ = taken_;
    check(backend::stream_write_value(call.slot.handle, value().address(),
                                      static_cast<std::uint32_t>(announced_)),
          call.operation);
  }
  [[nodiscard]] std::uint64_t announced() const noexcept { return announced_; }
  [[nodiscard]] bool has_passed(std::uint64_t position) const noexcept {
    return value().has_reached(position);
  }

  bool are_copies_prompt = true;   // The last copy to the host arrived in time.
  Clock::time_point last_large{};  // the last copy of more than alone_up_to

 private:
  [[nodiscard]] Value value() const noexcept {
    return Value{reinterpret_cast<std::uint32_t*>(const_cast<unsigned char*>(memory_.data()) +
                                                  ring_lines * line)};
  }

  PinnedBuffer<unsigned char> memory_;  // counts a use by the stream
  std::uint64_t taken_ = 0;
  std::uint64_t announced_ = 0;
  std::uint64_t stuck_before_ = 0;  // the position that the last vain wait was for
};

struct ShortRings {
  std::array<ShortRing, 32> all;
  [[nodiscard]] ShortRing& of(StreamKey stream) noexcept { return all[stream.id % all.size()]; }
};
ShortRings& short_rings() { return never_destroyed<ShortRings>(); }

/// Whether the ring may be used now. Without stream values only an idle stream shows that it has
/// passed the ring's memory.
[[nodiscard]] bool is_usable(ShortRing& ring, const CopyCall& call, Direction direction) {
  if (has_stream_values(call.slot.device) &&
      (direction == Direction::to_device || ring.are_copies_prompt))
    return true;
  if (!internal_call([&] { return is_idle(call.slot, call.operation); })) return false;
  if (!has_stream_values(call.slot.device)) ring.restart();
  return true;
}

[[nodiscard]] bool looks_usable(const Transfer& t, Direction direction) noexcept {
  return look_usable(host_range(t, direction, 0, t.height), page_use(direction));
}

[[nodiscard]] bool is_in_row(ShortRing& ring, std::size_t bytes) noexcept {
  if (bytes <= alone_up_to) return false;
  const Clock::time_point now = Clock::now();
  return now - std::exchange(ring.last_large, now) < row_gap;
}

/// To a device, it reads faster from memory than from a processor's cache. To the host, 64 KiB take
/// 16 us instead of 20, since the target's lines are not read first.
void move_bytes(const Transfer& t) noexcept {
  if (t.height > 1 || t.width < streamed_from) return copy_rows(t);
  copy_streaming(t.to, t.from, t.width);
}

[[nodiscard]] bool copy_to_device(ShortRing& ring, const CopyCall& call, const Transfer& t) {
  if (is_in_row(ring, t.bytes())) return false;
  if (t.bytes() > unchecked_up_to && !looks_usable(t, Direction::to_device)) return false;
  unsigned char* const block = ring.take(call, t.bytes());
  if (block == nullptr) return false;
  move_bytes({block, t.width, t.from, t.from_pitch, t.width, t.height});
  check(enqueue_transfer({t.to, t.to_pitch, block, t.width, t.width, t.height}, call.slot.handle),
        call.operation);
  if (has_stream_values(call.slot.device)) ring.announce(call, lines_per_mark);
  return true;
}

/// A part of a copy to the host, in the ring.
struct Arriving {
  Transfer to_user;
  std::uint64_t position;  // The stream passes it when the bytes have arrived.
};

/// Enqueues the next part. Its rows are contiguous in the ring.
[[nodiscard]] bool fetch(ShortRing& ring, const CopyCall& call, const Transfer& t,
                         Arriving& arriving) {
  unsigned char* const block = ring.take(call, t.bytes());
  if (block == nullptr) return false;
  check(
      enqueue_transfer({block, t.width, t.from, t.from_pitch, t.width, t.height}, call.slot.handle),
      call.operation);
  if (has_stream_values(call.slot.device)) ring.announce(call, 1);
  arriving = {{t.to, t.to_pitch, block, t.width, t.width, t.height}, ring.announced()};
  return true;
}

[[nodiscard]] bool copy_to_host(ShortRing& ring, const CopyCall& call, const Transfer& t) {
  const bool has_values = has_stream_values(call.slot.device);
  std::array<Arriving, short_copy_up_to / piece_bytes> parts;
  std::size_t count = 0;
  const std::size_t part = t.height > 1 || !has_values ? t.width : piece_bytes;
  for (std::size_t at = 0; at < t.width; at += part) {
    const Transfer next{
        t.to + at, t.to_pitch, t.from + at, t.from_pitch, std::min(part, t.width - at), t.height};
    if (!fetch(ring, call, next, parts[count++])) return false;
  }
  // The system checks the pages while the device copies.
  if (!looks_usable(t, Direction::to_host)) return false;
  const Clock::time_point deadline = Clock::now() + patience;
  for (std::size_t i = 0; i < count; ++i) {
    const auto has_arrived = [&] {
      return has_values ? ring.has_passed(parts[i].position)
                        : internal_call([&] { return has_finished(call.slot, call.operation); });
    };
    ring.are_copies_prompt = happens_soon(deadline, has_arrived);
    if (!ring.are_copies_prompt) return false;
    move_bytes(parts[i].to_user);
  }
  return true;
}

}  // namespace

bool try_short_copy(CopyCall& call, const Transfer& transfer, Direction direction) {
  ShortRing& ring = short_rings().of(call.key);
  const TryFlag locked{ring.locked};
  if (!locked || !ring.own(call.key)) return false;
  // After the lock: before that, another thread may enqueue a copy that uses the ring.
  if (!is_usable(ring, call, direction)) return false;
  return direction == Direction::to_device ? copy_to_device(ring, call, transfer)
                                           : copy_to_host(ring, call, transfer);
}

void give_back_short_copy_rings() noexcept {
  for (ShortRing& ring : short_rings().all)
    if (const TryFlag locked{ring.locked}) ring.give_back();
}

}}}  // namespace runnel::RUNNEL_ABI::detail
