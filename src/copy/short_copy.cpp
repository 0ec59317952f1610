// SPDX-License-Identifier: Apache-2.0
#include "copy/short_copy.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
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

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The device copies one piece while the thread moves the next one. On an H200, 256 KiB take 25.6 us
// in two pieces, 26.4 us in one, and 27.6 us in four.
constexpr std::size_t piece_bytes = std::size_t{128} << 10;
// An H200 copies 256 KiB to the host in 11 us. Beside other streams' copies to the host it takes as
// long as those do, and the caller must not wait for them.
constexpr auto patience = 30us;

// The last bytes of a block hold a value, if the copy leaves room for it.
constexpr std::size_t value_bytes = 64;

/// A pinned block that belongs to the last stream that used it. If a thread has locked the block
/// and that stream is idle, the stream has finished with the block: no event is needed.
struct KeptBlock {
  sync::Atomic<bool> locked{false};          // by a thread; only that thread changes the members
  sync::Atomic<std::uint64_t> stream_id{0};  // the stream that owns the block; 0: none
  PinnedBuffer<unsigned char> memory;        // counts a use by that stream

  void give_back() noexcept {
    stream_id.store(0, std::memory_order_relaxed);
    if (memory.empty()) return;
    count_up(counters.pinned_blocks);
    memory = {};
  }
};
struct KeptBlocks {
  std::array<KeptBlock, 8> all;
  sync::Atomic<std::size_t> next{0};  // the block for the next new stream
};
KeptBlocks& kept_blocks() { return never_destroyed<KeptBlocks>(); }

/// Locks the stream's block, or another one for it, during a scope. Empty if another thread has
/// locked that block.
class LockedBlock {
 public:
  explicit LockedBlock(std::uint64_t stream_id) noexcept {
    KeptBlocks& kept = kept_blocks();
    const auto is_own = [&](const KeptBlock& block) {
      return block.stream_id.load(std::memory_order_relaxed) == stream_id;
    };
    auto found = std::find_if(kept.all.begin(), kept.all.end(), is_own);
    if (found == kept.all.end())
      found =
          kept.all.begin() + kept.next.fetch_add(1, std::memory_order_relaxed) % kept.all.size();
    try_lock(*found);
  }
  explicit LockedBlock(KeptBlock& block) noexcept { try_lock(block); }
  LockedBlock(const LockedBlock&) = delete;
  LockedBlock& operator=(const LockedBlock&) = delete;
  ~LockedBlock() {
    if (block_ != nullptr) block_->locked.store(false, std::memory_order_release);
  }
  [[nodiscard]] KeptBlock* operator->() const noexcept { return block_; }
  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }

  /// The block's memory; null if it cannot be allocated. Requires: the stream is idle.
  [[nodiscard]] unsigned char* memory_for(StreamUse use) const try {
    if (block_->stream_id.load(std::memory_order_relaxed) != use.id) {
      block_->give_back();
      block_->memory = PinnedBuffer<unsigned char>{short_copy_up_to};
      count_down(counters.pinned_blocks);  // live_objects() counts the blocks of users only
      static_cast<void>(note_pinned_use(block_->memory.data(), short_copy_up_to, use));
      block_->stream_id.store(use.id, std::memory_order_relaxed);
    }
    return block_->memory.data();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }

 private:
  void try_lock(KeptBlock& block) noexcept {
    if (!block.locked.exchange(true, std::memory_order_acquire)) block_ = &block;
  }
  KeptBlock* block_ = nullptr;
};

/// Calls `is_done` until it returns true, for a short time. Returns whether it did.
template <class Question>
[[nodiscard]] bool happens_soon(Question is_done) {
  for (const auto deadline = Clock::now() + patience; !is_done();)
    if (Clock::now() >= deadline) return false;
  return true;
}

void copy_to_device(const Transfer& t, unsigned char* block, native::stream stream,
                    const char* operation) {
  if (t.height > 1) {
    copy_rows({block, t.width, t.from, t.from_pitch, t.width, t.height});
    return check(
        backend::copy_2d_async(t.to, t.to_pitch, block, t.width, t.width, t.height, stream),
        operation);
  }
  const std::size_t pieces = (t.width + piece_bytes - 1) / piece_bytes;
  const std::size_t piece = (t.width + pieces - 1) / pieces;
  for (std::size_t at = 0; at < t.width; at += piece) {
    const std::size_t bytes = std::min(piece, t.width - at);
    // A device reads faster from memory than from a processor's cache.
    copy_streaming(block + at, t.from + at, bytes);
    check(backend::copy_async(t.to + at, block + at, bytes, stream), operation);
  }
}

/// Waits for a short time until the copy to the block is complete. Reading a value is immediate,
/// while a query takes the runtime a microsecond or two. Requires: the stream was idle before the
/// copy.
[[nodiscard]] bool arrives_soon(const CopyCall& call, unsigned char* block, std::size_t bytes) {
  if (bytes > short_copy_up_to - value_bytes || !has_stream_values(call.slot.device))
    return happens_soon([&] { return has_finished(call.slot, call.operation); });
  const Value arrived{reinterpret_cast<std::uint32_t*>(block + short_copy_up_to - value_bytes)};
  arrived.set(0);
  check(backend::stream_write_value(call.slot.handle, arrived.address(), 1), call.operation);
  return happens_soon([&] { return arrived.has_reached(1); });
}

}  // namespace

ShortCopy try_short_copy(CopyCall& call, const Transfer& transfer, Direction direction) {
  const LockedBlock locked{call.use.id};
  if (!locked) return ShortCopy::not_possible;
  // The queries must not invalidate a capture of the caller.
  const RelaxedCapture relaxed;
  // The query comes after the lock: before that, another thread may enqueue a copy that uses the
  // block. Behind other copies to the device, the workers are faster than this thread alone.
  if (direction == Direction::to_device && call.ahead.known() == Ahead::uploads)
    return ShortCopy::stream_is_busy;
  const bool is_known_idle = call.ahead.known() == Ahead::idle && call.ahead.is_undisturbed();
  if (!is_known_idle && !is_idle(call.slot, call.operation)) return ShortCopy::stream_is_busy;
  call.ahead.found_idle();
  const Range on_host = host_range(transfer, direction, 0, transfer.height);
  const auto looks_usable = [&] { return look_usable(on_host, page_use(direction)); };
  if (direction == Direction::to_device && !looks_usable()) return ShortCopy::not_possible;
  unsigned char* const block = locked.memory_for(call.use);
  if (block == nullptr) return ShortCopy::not_possible;
  if (direction == Direction::to_device) {
    copy_to_device(transfer, block, call.slot.handle, call.operation);
    return ShortCopy::done;
  }
  const Transfer to_block{block,          transfer.width, transfer.from, transfer.from_pitch,
                          transfer.width, transfer.height};
  check(enqueue_transfer(to_block, call.slot.handle), call.operation);
  // The system checks the pages while the device copies. If the device takes longer than
  // `patience`, the copy is staged instead.
  const bool is_usable = looks_usable();
  if (!arrives_soon(call, block, transfer.bytes()) || !is_usable) return ShortCopy::not_possible;
  copy_rows(
      {transfer.to, transfer.to_pitch, block, transfer.width, transfer.width, transfer.height});
  return ShortCopy::done;
}

void give_back_short_copy_blocks() noexcept {
  for (KeptBlock& block : kept_blocks().all)
    if (const LockedBlock locked{block}) locked->give_back();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
