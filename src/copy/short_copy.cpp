// SPDX-License-Identifier: Apache-2.0
#include "copy/short_copy.hpp"

#include "base/check.hpp"
#include "base/push_front.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "base/try_flag.hpp"
#include "copy/route.hpp"
#include "copy/staging/ring.hpp"
#include "copy/staging/rings.hpp"
#include "copy/streaming_copy.hpp"
#include "copy/user_pages.hpp"
#include "device/device_table.hpp"
#include "memory/pinned_pool.hpp"
#include "slot/idle.hpp"

#include <runnel/detail/attachment.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
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
constexpr size_t alone_up_to = size_t{64} << 10;
// The device copies one piece to the host while the thread moves the one before.
constexpr size_t piece_bytes = size_t{64} << 10;
// Pages of sources up to this size are not checked: the check would take as long as the copy.
constexpr size_t unchecked_up_to = size_t{32} << 10;
// Smaller copies do not bypass the caches: the fence at the end costs more than it saves.
constexpr size_t streamed_from = size_t{16} << 10;

// A ring's memory is counted in lines. Its last line holds the value.
constexpr size_t line = 64;
// A stream gets a ring after so many small copies. Each of these takes a block of the pool for
// itself.
constexpr int copies_without_ring = 3;
constexpr size_t smallest_ring = size_t{64} << 10;
// A ring grows when a stream has used all of it: up to this size, or up to `largest_ring` while all
// rings together are small.
constexpr size_t modest_ring = size_t{256} << 10;
constexpr size_t largest_ring = size_t{4} << 20;
constexpr size_t large_rings_up_to = size_t{64} << 20;
// A copy to a device announces its position if this part of the ring was taken since the last one.
constexpr uint64_t marks_per_ring = 16;
// A ring for which there was no memory asks again after so many copies.
constexpr int copies_after_refusal = 100;
// Rings that are not used for so long are given back when another one needs memory.
constexpr auto unused_for = 1s;

/// The bytes of all rings.
constinit sync::Atomic<size_t> bytes_in_rings{0};

/// Calls `is_done` until it returns true, for a short time. Returns whether it did.
template <class Question>
[[nodiscard]] bool happens_soon(Clock::time_point deadline, Question is_done) {
  while (!is_done())
    if (Clock::now() >= deadline) return false;
  return true;
}

}  // namespace

/// The pinned memory of one stream. Positions count all lines that were ever taken of its present
/// memory. The stream writes the position that it has passed into the value: not after each copy,
/// because that would be a second runtime call.
class ShortRing {
 public:
  sync::Atomic<bool> locked{false};  // by a thread; only that thread uses what follows

  /// Makes the ring one of the stream, with memory for a copy of so many bytes. False if there is
  /// none.
  [[nodiscard]] bool prepare(StreamKey stream, size_t bytes) {
    if (stream_id_ != stream.id) [[unlikely]]
      begin(stream);
    // The parts of a copy to the host are in the ring at the same time, and each is contiguous.
    const size_t least = std::max(smallest_ring, std::bit_ceil(2 * bytes));
    is_used_ = true;
    if (bytes_ >= least && (taken_ + lines_of(bytes) <= lines() || !may_grow())) [[likely]]
      return true;
    return replace_memory(stream, std::max(least, std::min(4 * bytes_, largest_ring))) ||
           bytes_ >= least;
  }
  /// Call it after each copy. Keeps the memory for later ones, if there were some.
  void finish() noexcept {
    if (copies_ == copies_without_ring) [[likely]]
      return;
    ++copies_;
    give_back();
  }
  void give_back() noexcept {
    if (memory_ == nullptr) return;
    bytes_in_rings -= bytes_;
    bytes_ = 0;
    free_own_pinned(std::exchange(memory_, nullptr));
  }
  /// The same, unless it was used since the last call.
  void give_back_unused() noexcept {
    if (!std::exchange(is_used_, false)) give_back();
  }

  /// Takes contiguous memory. If the stream still uses it, waits for a short time, but not twice
  /// for a stream that does not move on. Null if there is no room.
  [[nodiscard]] unsigned char* take(const CopyCall& call, size_t bytes) {
    const uint64_t count = lines_of(bytes), ring_lines = lines();
    const bool wraps = at_ + count > ring_lines;
    const uint64_t begin = wraps ? 0 : at_;
    const uint64_t end = taken_ + (wraps ? ring_lines - at_ : 0) + count;
    if (end > ring_lines && !has_passed(end - ring_lines)) {
      announce(call, 1);
      // A position that lies further back was passed: else its memory would not be taken again.
      if (taken_ - stuck_before_ <= ring_lines && !has_passed(stuck_before_)) return nullptr;
      if (!happens_soon(Clock::now() + patience_for_room,
                        [&] { return has_passed(end - ring_lines); })) {
        stuck_before_ = end - ring_lines;
        return nullptr;
      }
    }
    taken_ = end;
    at_ = begin + count;
    return memory_ + begin * line;
  }
  /// All memory is free. Requires: the stream is idle, and never writes the value.
  void restart() noexcept { taken_ = at_ = announced_ = stuck_before_ = 0; }
  /// Enqueues a write of the position, if the device has stream values and the last one lies at
  /// least `lines` behind.
  void announce(const CopyCall& call, uint64_t lines) {
    if (taken_ - announced_ < lines || !has_stream_values(call.slot.device)) return;
    announced_ = taken_;
    check(backend::stream_write_value(call.slot.handle, value().address(),
                                      static_cast<uint32_t>(announced_)),
          call.operation);
  }
  void announce_sometimes(const CopyCall& call) { announce(call, lines() / marks_per_ring); }
  uint64_t announced() const noexcept { return announced_; }
  bool has_passed(uint64_t position) const noexcept { return value().has_reached(position); }

  bool are_copies_prompt = true;   // The last copy to the host arrived in time.
  Clock::time_point last_large{};  // the last copy of more than alone_up_to
  ShortRing* next = nullptr;       // of all rings

 private:
  static uint64_t lines_of(size_t bytes) noexcept { return (bytes + line - 1) / line; }
  uint64_t lines() const noexcept { return bytes_ / line - 1; }
  Value value() const noexcept {
    return Value{reinterpret_cast<uint32_t*>(memory_ + lines() * line)};
  }
  bool may_grow() const noexcept {
    return copies_ == copies_without_ring && bytes_ < largest_ring &&
           (bytes_ < modest_ring || bytes_in_rings + 3 * bytes_ <= large_rings_up_to);
  }
  void begin(StreamKey stream) noexcept {
    give_back();
    stream_id_ = stream.id;
    copies_ = refused_for_ = 0;
    are_copies_prompt = true;
    is_attached_ = false;
  }
  /// Takes other memory. The pool hands the old one out again when the stream has passed.
  [[nodiscard]] bool replace_memory(StreamKey stream, size_t bytes) {
    if (refused_for_ > 0) return --refused_for_, false;
    give_back_unused_rings();
    auto* const memory = static_cast<unsigned char*>(try_allocate_own_pinned(bytes));
    if (memory == nullptr) return refused_for_ = copies_after_refusal, false;
    // First: without this note the pool would hand the memory out while the stream uses it.
    try {
      static_cast<void>(note_pinned_use(memory, bytes, stream));
    } catch (const std::bad_alloc&) {
      free_own_pinned(memory);
      return false;
    }
    give_back();
    memory_ = memory;
    bytes_ = bytes;
    bytes_in_rings += bytes;
    attach(*stream.slot);
    restart();
    value().set(0);
    return true;
  }
  /// Lets the end of the stream give the memory back.
  void attach(Slot& slot) noexcept {
    if (std::exchange(is_attached_, true)) return;
    end_.destroy = [](Attachment* end) noexcept {
      ShortRing& ring = static_cast<End*>(end)->ring;
      if (const TryFlag held{ring.locked}) ring.give_back();
    };
    push_front(slot.attachments, end_, end_.next);
  }
  static void give_back_unused_rings() noexcept;

  struct End : Attachment {
    explicit End(ShortRing& of) noexcept : Attachment{&of, nullptr}, ring{of} {}
    ShortRing& ring;
  };

  unsigned char* memory_ = nullptr;  // The pool knows that the stream uses it.
  size_t bytes_ = 0;
  uint64_t stream_id_ = 0;  // the stream that the memory belongs to
  uint64_t taken_ = 0;
  uint64_t at_ = 0;  // the line behind the last one that was taken
  uint64_t announced_ = 0;
  uint64_t stuck_before_ = 0;  // the position that the last vain wait was for
  int copies_ = 0;             // of the stream, up to copies_without_ring
  int refused_for_ = 0;        // copies
  bool is_used_ = false;
  bool is_attached_ = false;
  End end_{*this};
};

namespace {

/// All rings, the newest first.
constinit sync::Atomic<ShortRing*> rings{nullptr};

template <class F>
void for_each_ring(F f) noexcept {
  for (ShortRing* each = rings; each != nullptr; each = each->next)
    if (const TryFlag locked{each->locked}) f(*each);
}

/// The ring of the slot. Null if there is no memory for it.
[[nodiscard]] ShortRing* ring_of(Slot& slot) noexcept {
  ShortRing* known = slot.short_ring;
  if (known != nullptr) [[likely]]
    return known;
  auto fresh = std::unique_ptr<ShortRing>{new (std::nothrow) ShortRing};
  if (fresh == nullptr) return nullptr;
  if (!slot.short_ring.compare_exchange_strong(known, fresh.get())) return known;
  give_back_rings_in_shortage();
  push_front(rings, *fresh, fresh->next);
  return fresh.release();
}

/// Whether the ring may be used now. Without stream values only an idle stream shows that it has
/// passed the ring's memory.
bool is_usable(ShortRing& ring, const CopyCall& call, Direction direction) {
  if (has_stream_values(call.slot.device) &&
      (direction == Direction::to_device || ring.are_copies_prompt))
    return true;
  if (!call.is_stream_idle()) return false;
  if (!has_stream_values(call.slot.device)) ring.restart();
  return true;
}

bool looks_usable(const Transfer& t, Direction direction) noexcept {
  return look_usable(host_range(t, direction), page_use(direction));
}

bool is_in_row(ShortRing& ring, size_t bytes) noexcept {
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
  if (t.bytes() > unchecked_up_to && !looks_usable(t, Direction::to_device)) return false;
  unsigned char* const block = ring.take(call, t.bytes());
  if (block == nullptr) return false;
  move_bytes({block, t.width, t.from, t.from_pitch, t.width, t.height});
  check(enqueue_transfer({t.to, t.to_pitch, block, t.width, t.width, t.height}, call.slot.handle),
        call.operation);
  ring.announce_sometimes(call);
  return true;
}

/// A part of a copy to the host, in the ring.
struct Arriving {
  Transfer to_user;
  uint64_t position;  // The stream passes it when the bytes have arrived.
};

/// Enqueues the next part. Its rows are contiguous in the ring.
[[nodiscard]] bool fetch(ShortRing& ring, const CopyCall& call, const Transfer& t,
                         Arriving& arriving) {
  unsigned char* const block = ring.take(call, t.bytes());
  if (block == nullptr) return false;
  check(
      enqueue_transfer({block, t.width, t.from, t.from_pitch, t.width, t.height}, call.slot.handle),
      call.operation);
  ring.announce(call, 1);
  arriving = {{t.to, t.to_pitch, block, t.width, t.width, t.height}, ring.announced()};
  return true;
}

[[nodiscard]] bool copy_to_host(ShortRing& ring, const CopyCall& call, const Transfer& t) {
  const bool has_values = has_stream_values(call.slot.device);
  std::array<Arriving, short_copy_up_to / piece_bytes> parts;
  size_t count = 0;
  const size_t part = t.height > 1 || !has_values ? t.width : piece_bytes;
  for (size_t at = 0; at < t.width; at += part) {
    const Transfer next{
        t.to + at, t.to_pitch, t.from + at, t.from_pitch, std::min(part, t.width - at), t.height};
    if (!fetch(ring, call, next, parts[count++])) return false;
  }
  // The system checks the pages while the device copies.
  if (!looks_usable(t, Direction::to_host)) return false;
  const Clock::time_point deadline = Clock::now() + patience;
  for (size_t i = 0; i < count; ++i) {
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

void ShortRing::give_back_unused_rings() noexcept {
  static constinit sync::Atomic<Clock::rep> last{0};
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep before = last;
  if (now - before < Clock::duration{unused_for}.count() ||
      !last.compare_exchange_strong(before, now))
    return;
  for_each_ring([](ShortRing& ring) { ring.give_back_unused(); });
}

bool try_short_copy(CopyCall& call, const Transfer& transfer, Direction direction) {
  ShortRing* const ring = ring_of(call.slot);
  if (ring == nullptr) return false;
  const TryFlag locked{ring->locked};
  if (!locked) return false;
  if (direction == Direction::to_device && is_in_row(*ring, transfer.bytes())) return false;
  // After the lock: before that, another thread may enqueue a copy that uses the ring. Before the
  // ring may give memory back, whose use is recorded on the stream.
  if (!is_usable(*ring, call, direction)) return false;
  if (!ring->prepare(call.key, transfer.bytes())) return false;
  const bool is_done = direction == Direction::to_device ? copy_to_device(*ring, call, transfer)
                                                         : copy_to_host(*ring, call, transfer);
  ring->finish();
  return is_done;
}

void give_back_short_copy_rings() noexcept {
  for_each_ring([](ShortRing& ring) { ring.give_back(); });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
