// SPDX-License-Identifier: Apache-2.0
#include "copy/short_copy.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/immortal.hpp"
#include "base/relaxed_capture.hpp"
#include "copy/streaming_copy.hpp"
#include "memory/pinned_blocks.hpp"
#include "stream/idle.hpp"

#include <runnel/memory.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t most_bytes = std::size_t{256} << 10;
// The device starts on one while the next is moved. On an H200 256 KiB take 25.6 us in two pieces, 26.4 in one and 27.6 in four.
constexpr std::size_t piece_bytes = std::size_t{128} << 10;
// An H200 brings 256 KiB to the host in 11 us; beside other streams' copies to the host, for which nobody is to wait here, in as long as
// they take.
constexpr auto patience = 30us;

/// Stays with the last stream that copied so: when that is seen to be idle again, while the block is taken, it has passed the block.
struct KeptBlock {
  std::atomic<bool> taken{false};           // by a thread, which alone changes
  std::atomic<std::uint64_t> stream_id{0};  // this, and
  PinnedBuffer<unsigned char> memory;       // which counts a use of that stream

  void give_back() noexcept {
    stream_id.store(0, std::memory_order_relaxed);
    if (memory.empty()) return;
    count_up(counters.pinned_blocks);
    memory = {};
  }
};
struct KeptBlocks {
  std::array<KeptBlock, 8> all;
  std::atomic<std::size_t> next{0};  // to be given to another stream
};
// Never destroyed: copies are made as late as statics die.
KeptBlocks& kept_blocks() { return immortal<KeptBlocks>(); }

/// One of them, for this scope; none where another thread has it.
class TakenBlock {
 public:
  explicit TakenBlock(std::uint64_t stream_id) noexcept {
    KeptBlocks& kept = kept_blocks();
    const auto is_own = [&](const KeptBlock& block) { return block.stream_id.load(std::memory_order_relaxed) == stream_id; };
    auto found = std::find_if(kept.all.begin(), kept.all.end(), is_own);
    if (found == kept.all.end()) found = kept.all.begin() + kept.next.fetch_add(1, std::memory_order_relaxed) % kept.all.size();
    take(*found);
  }
  explicit TakenBlock(KeptBlock& block) noexcept { take(block); }
  TakenBlock(const TakenBlock&) = delete;
  TakenBlock& operator=(const TakenBlock&) = delete;
  ~TakenBlock() {
    if (block_ != nullptr) block_->taken.store(false, std::memory_order_release);
  }
  [[nodiscard]] KeptBlock* operator->() const noexcept { return block_; }
  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }

  /// Its memory, for that idle stream; null where there is none to be had.
  [[nodiscard]] unsigned char* memory_for(StreamUse use) const try {
    if (block_->stream_id.load(std::memory_order_relaxed) != use.id) {
      block_->give_back();
      block_->memory = PinnedBuffer<unsigned char>{most_bytes};
      count_down(counters.pinned_blocks);  // it is not the user's
      static_cast<void>(note_pinned_use(block_->memory.data(), most_bytes, use));
      block_->stream_id.store(use.id, std::memory_order_relaxed);
    }
    return block_->memory.data();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }

 private:
  void take(KeptBlock& block) noexcept {
    if (!block.taken.exchange(true, std::memory_order_acquire)) block_ = &block;
  }
  KeptBlock* block_ = nullptr;
};

[[nodiscard]] bool passed_soon(const Slot& slot, const char* operation) {
  for (const auto deadline = Clock::now() + patience; !has_finished(slot, operation);)
    if (Clock::now() >= deadline) return false;
  return true;
}

void carry_to_device(const Transfer& t, unsigned char* block, native::stream stream, const char* operation) {
  if (t.height > 1) {
    move_rows({block, t.width, t.from, t.from_pitch, t.width, t.height});
    return check(backend::copy_2d_async(t.to, t.to_pitch, block, t.width, t.width, t.height, stream), operation);
  }
  const std::size_t pieces = (t.width + piece_bytes - 1) / piece_bytes;
  const std::size_t piece = (t.width + pieces - 1) / pieces;
  for (std::size_t at = 0; at < t.width; at += piece) {
    const std::size_t bytes = std::min(piece, t.width - at);
    copy_streaming(block + at, t.from + at, bytes);  // devices read it faster from memory than from a processor's cache
    check(backend::copy_async(t.to + at, block + at, bytes, stream), operation);
  }
}

[[nodiscard]] backend::status copy_from_device(unsigned char* block, const Transfer& t, native::stream stream) noexcept {
  if (t.height == 1) return backend::copy_async(block, t.from, t.width, stream);
  return backend::copy_2d_async(block, t.width, t.from, t.from_pitch, t.width, t.height, stream);
}

}  // namespace

bool carried_at_once(Slot& slot, const Transfer& transfer, Side side, std::optional<bool>& idle, const char* operation) {
  if (transfer.width * transfer.height > most_bytes || (idle && !*idle)) return false;
  const StreamUse use{&slot, slot.id.load(std::memory_order_relaxed)};
  const TakenBlock taken{use.id};
  const RelaxedCapture relaxed;  // for the questions how far the stream is
  // Asked now, even if known from before: another thread may have had the block since.
  if (taken) idle = is_idle(slot, operation);
  if (!taken || !*idle) return false;

  const Transfer t = flattened(transfer);
  const HostBytes touched = host_bytes(t, side, 0, t.height);
  const auto usable = [&] { return surely_usable(touched.begin, touched.bytes, purpose_of(side)); };
  if (side == Side::to_device && !usable()) return false;
  unsigned char* const block = taken.memory_for(use);
  if (block == nullptr) return false;
  if (side == Side::to_device) {
    carry_to_device(t, block, slot.handle, operation);
    return true;
  }
  check(copy_from_device(block, t, slot.handle), operation);
  if (!usable() || !passed_soon(slot, operation)) {
    idle.reset();
    return false;  // the bytes come a second time, the other way
  }
  move_rows({t.to, t.to_pitch, block, t.width, t.width, t.height});
  return true;
}

void give_back_kept_blocks() noexcept {
  for (KeptBlock& block : kept_blocks().all)
    if (const TakenBlock taken{block}) taken->give_back();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
