// SPDX-License-Identifier: Apache-2.0
#include "pinned_pool.hpp"

#include "check.hpp"
#include "counters.hpp"
#include "device_table.hpp"
#include "event_pool.hpp"
#include "process.hpp"
#include "relaxed_capture.hpp"
#include "spin_lock.hpp"

#include <runnel/memory.hpp>
#include <runnel/pinned_pool.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

constexpr const char* operation = "allocate pinned memory";

constexpr std::size_t smallest = std::size_t{4} << 10;  // a page, which is what gets pinned
constexpr std::size_t largest = std::size_t{1} << 30;
constexpr std::size_t class_count = std::countr_zero(largest) - std::countr_zero(smallest) + 1;

/// A stream that a block waits for: first by name, then, since the block was given back, by an event recorded on the stream.
struct PendingUse {
  StreamUse use;
  native::event event{};
  int device = 0;  // of the event
};

enum class State {
  in_use,
  idle,     // in its shelf's `idle`
  pending,  // in its shelf's `pending`: given back, not yet passed by all streams
  between,  // in nobody's list: a thread is at it
  lost,     // nobody will know when it has been passed, so it is never handed out again
};

struct Shelf;
struct Block {
  std::uintptr_t begin;
  std::size_t bytes;
  Shelf* shelf;
  State state = State::in_use;
  std::vector<PendingUse> uses;
  std::size_t prune_at = 16;  // so many uses are looked through for streams that are over
  Block* next = nullptr;
};

/// First in, first out.
class Queue {
 public:
  void push(Block* block) noexcept {
    block->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = block;
    last_ = block;
    ++size_;
  }
  [[nodiscard]] Block* pop() noexcept {
    Block* const block = first_;
    if (block == nullptr) return nullptr;
    first_ = block->next;
    --size_;
    return block;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  Block* first_ = nullptr;
  Block* last_ = nullptr;
  std::size_t size_ = 0;
};

/// The blocks of one size and kind that nobody owns.
struct Shelf {
  Block* idle = nullptr;
  Queue pending;
  bool keeps = true;  // false: what is too large to be kept goes back to the runtime
};

struct Known {
  std::uintptr_t begin;
  std::uintptr_t end;
  Block* block;
};

// Never destroyed: static buffers ask and leave until the process ends.
struct Pool {
  SpinLock lock;
  std::vector<Known> known;  // by address
  std::array<std::array<Shelf, class_count>, 2> shelves;
  Shelf direct;
  PinnedStatistics statistics{};
  std::size_t held = 0;  // bytes, in use or not
  std::size_t limit = std::numeric_limits<std::size_t>::max();

  Pool() { direct.keeps = false; }
  [[nodiscard]] auto after(std::uintptr_t address) {
    return std::upper_bound(known.begin(), known.end(), address, [](std::uintptr_t a, const Known& entry) { return a < entry.begin; });
  }
  /// The block that contains the address, or null.
  [[nodiscard]] Block* find(std::uintptr_t address) {
    const auto next = after(address);
    return next != known.begin() && address < (next - 1)->end ? (next - 1)->block : nullptr;
  }
};
Pool& pool() {
  static Pool& instance = *new Pool;
  return instance;
}
constinit std::atomic<bool> any_block{false};  // ever: until then nothing needs to be looked up

[[nodiscard]] std::uintptr_t address_of(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Records the use's event if it has none yet. One that could not be recorded stays as it is and is tried again: until then the block
/// waits.
void record(PendingUse& pending) noexcept {
  if (pending.event != nullptr) return;
  const HeldStream stream{pending.use};
  if (!stream || !stream.is_reachable()) return;
  pending.event = stream.record(InCapture::never);
  if (pending.event == nullptr) return;
  pending.device = stream.device();
  end_use(pending.use);
}

enum class Progress { waiting, passed, lost };

/// Asks the runtime. The block is in no list.
[[nodiscard]] Progress advance(PendingUse& pending) noexcept {
  record(pending);
  if (pending.event != nullptr) {
    if (const driver::status s = driver::event_query(pending.event); s != driver::ok) {
      driver::forget_error(s);
      return Progress::waiting;
    }
    return_event(pending.event, pending.device, {});
    return Progress::passed;
  }
  if (pending.use.slot->id.load(std::memory_order_acquire) == pending.use.id) return Progress::waiting;
  switch (poll_remainder(pending.use)) {
    case Remainder::State::open:
    case Remainder::State::recorded:
      return Progress::waiting;
    case Remainder::State::passed:
      end_use(pending.use);
      return Progress::passed;
    case Remainder::State::lost:
      break;
  }
  end_use(pending.use);
  return Progress::lost;
}

[[nodiscard]] Progress advance(Block& block) noexcept {
  bool lost = block.state == State::lost;
  std::erase_if(block.uses, [&](PendingUse& pending) {
    const Progress progress = advance(pending);
    lost = lost || progress == Progress::lost;
    return progress != Progress::waiting;
  });
  if (lost) block.state = State::lost;
  return lost ? Progress::lost : block.uses.empty() ? Progress::passed : Progress::waiting;
}

/// Forgets a block that is in no list. The lock is held.
void forget(Block& block) noexcept {
  pool().known.erase(pool().after(block.begin) - 1);
  pool().held -= block.bytes;
}

/// Out of the books first: as soon as the runtime has it, another thread may be given the same address.
void release_block(Block* block) noexcept {
  void* const memory = reinterpret_cast<void*>(block->begin);
  delete block;
  release({Postponed::What::pinned, memory, 0});
}

/// Looks whether blocks that were given back have been passed, the oldest `at_most` first; those that have not go to the end, so that one
/// stream that is held up does not hide the others. One that has, and is kept, is returned: owned again, if `take`; the rest become idle.
Block* collect(Shelf& shelf, std::size_t at_most, bool take) noexcept {
  {
    const std::lock_guard lock{pool().lock};
    at_most = std::min(at_most, shelf.pending.size());
  }
  if (at_most == 0) return nullptr;
  const RelaxedCapture relaxed;
  Block* taken = nullptr;
  for (std::size_t i = 0; i < at_most && taken == nullptr; ++i) {
    Block* block = nullptr;
    {
      const std::lock_guard lock{pool().lock};
      block = shelf.pending.pop();
      if (block != nullptr) block->state = State::between;
    }
    if (block == nullptr) break;
    const Progress progress = advance(*block);
    std::unique_lock lock{pool().lock};
    if (progress == Progress::waiting) {
      block->state = State::pending;
      shelf.pending.push(block);
    } else if (progress == Progress::passed && !shelf.keeps) {
      --pool().statistics.cached_blocks;
      pool().statistics.cached -= block->bytes;
      forget(*block);
      lock.unlock();
      release_block(block);
    } else if (progress == Progress::passed && take) {
      block->state = State::between;
      taken = block;
    } else if (progress == Progress::passed) {
      block->state = State::idle;
      block->next = std::exchange(shelf.idle, block);
    }
  }
  return taken;
}

/// All cached blocks that are not in use by a stream go back to the runtime.
void release_idle() noexcept {
  Pool& all = pool();
  const auto empty = [&](Shelf& shelf) {
    collect(shelf, std::numeric_limits<std::size_t>::max(), false);
    Block* blocks = nullptr;
    {
      const std::lock_guard lock{all.lock};
      blocks = std::exchange(shelf.idle, nullptr);
      for (Block* block = blocks; block != nullptr; block = block->next) {
        --all.statistics.cached_blocks;
        all.statistics.cached -= block->bytes;
        forget(*block);
      }
    }
    while (blocks != nullptr) release_block(std::exchange(blocks, blocks->next));
  };
  for (auto& kind : all.shelves)
    for (Shelf& shelf : kind) empty(shelf);
  empty(all.direct);
}

/// The lock is held.
void own(Block& block) noexcept {
  PinnedStatistics& s = pool().statistics;
  block.state = State::in_use;
  ++s.blocks;
  s.in_use += block.bytes;
  s.peak = std::max(s.peak, s.in_use);
}
void own_cached(Block& block) noexcept {
  PinnedStatistics& s = pool().statistics;
  ++s.hits;
  --s.cached_blocks;
  s.cached -= block.bytes;
  own(block);
}

/// Takes part of what the limit leaves, for one block.
class Room {
 public:
  explicit Room(std::size_t bytes) noexcept : bytes_{bytes} {
    const std::lock_guard lock{pool().lock};
    if (pool().held <= pool().limit && bytes <= pool().limit - pool().held) {
      pool().held += bytes;
      there_is_ = true;
    }
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    if (!there_is_) return;
    const std::lock_guard lock{pool().lock};
    pool().held -= bytes_;
  }
  [[nodiscard]] explicit operator bool() const noexcept { return there_is_; }
  void keep() noexcept { there_is_ = false; }

 private:
  std::size_t bytes_;
  bool there_is_ = false;
};

[[nodiscard]] driver::status allocate_native(void*& memory, std::size_t bytes, bool write_combined) noexcept {
  const RelaxedCapture relaxed;
  return write_combined ? driver::malloc_host_write_combined(memory, bytes) : driver::malloc_host(memory, bytes);
}

/// A block that has just been passed, rather than emptying the cache; else null.
[[nodiscard]] void* take_passed(Shelf& shelf, std::size_t at_most) noexcept {
  Block* const block = collect(shelf, at_most, true);
  if (block == nullptr) return nullptr;
  const std::lock_guard lock{pool().lock};
  own_cached(*block);
  return reinterpret_cast<void*>(block->begin);
}

void* allocate_fresh(Shelf& shelf, std::size_t bytes, bool write_combined) {
  auto block = std::make_unique<Block>(Block{0, bytes, &shelf, State::in_use, {}});
  void* memory = nullptr;
  const auto attempt = [&](bool last) {
    Room room{bytes};
    if (!room) {
      if (last) throw_error(errc::out_of_memory, operation, "the limit that set_pinned_limit() has set leaves no room for it");
      return false;
    }
    const driver::status s = allocate_native(memory, bytes, write_combined);
    if (s != driver::ok && (last || driver::classify(s) != errc::out_of_memory)) throw_status(s, operation);
    if (s != driver::ok) {
      driver::forget_error(s);
      return false;
    }
    room.keep();
    return true;
  };
  if (!attempt(false)) {
    if (void* const passed = take_passed(shelf, std::numeric_limits<std::size_t>::max())) return passed;
    release_idle();
    attempt(true);
  }
  block->begin = address_of(memory);
  try {
    const std::lock_guard lock{pool().lock};
    pool().known.insert(pool().after(block->begin), {block->begin, block->begin + bytes, block.get()});
    ++pool().statistics.misses;
    own(*block);
  } catch (...) {
    {
      const std::lock_guard lock{pool().lock};
      pool().held -= bytes;
    }
    release({Postponed::What::pinned, memory, 0});
    throw;
  }
  any_block.store(true, std::memory_order_relaxed);
  static_cast<void>(block.release());
  return memory;
}

/// Drops uses of streams that are over, of a block that stays in use while streams come and go. The lock is held: this is rare.
void prune(Block& block) noexcept {
  const RelaxedCapture relaxed;
  std::erase_if(block.uses, [&](const PendingUse& pending) {
    if (pending.use.slot->id.load(std::memory_order_acquire) == pending.use.id) return false;
    if (poll_remainder(pending.use) != Remainder::State::passed) return false;
    end_use(pending.use);
    return true;
  });
  block.prune_at = std::max<std::size_t>(16, 2 * block.uses.size());
}

/// The lock is held.
void add_use(Block& block, StreamUse use) {
  const auto same = [&](const PendingUse& pending) { return pending.use == use; };
  if (!block.uses.empty() && same(block.uses.back())) [[likely]]
    return;
  const auto found = std::find_if(block.uses.begin(), block.uses.end(), same);
  if (found != block.uses.end()) return std::swap(*found, block.uses.back());
  if (block.uses.size() >= block.prune_at) prune(block);
  block.uses.push_back({use});
  if (!begin_use(use)) block.uses.pop_back();  // the stream was destroyed meanwhile; the operation will say so
}

}  // namespace

bool note_pinned_use(const void* pointer, std::size_t bytes, StreamUse use) {
  if (!any_block.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock{pool().lock};
  Block* const block = pool().find(address_of(pointer));
  if (block == nullptr) return false;
  if (block->state == State::in_use) add_use(*block, use);
  return address_of(pointer) + bytes <= block->begin + block->bytes;
}

void* allocate_pinned(std::size_t bytes, bool write_combined) {
  if (bytes == 0) return nullptr;
  enter(operation);
  watch_thread_exit();
  require_device(0, operation);
  Pool& all = pool();
  Shelf* shelf = &all.direct;
  if (bytes <= largest) {
    bytes = std::bit_ceil(std::max(bytes, smallest));
    shelf = &all.shelves[write_combined][static_cast<std::size_t>(std::countr_zero(bytes) - std::countr_zero(smallest))];
    const std::lock_guard lock{all.lock};
    if (Block* const block = shelf->idle) {
      shelf->idle = block->next;
      own_cached(*block);
      count_up(counters.pinned_blocks);
      return reinterpret_cast<void*>(block->begin);
    }
  } else if (bytes > std::numeric_limits<std::size_t>::max() - smallest) {
    throw_error(errc::out_of_memory, operation, "the size does not fit an address");
  } else {
    bytes = (bytes + smallest - 1) / smallest * smallest;
  }
  constexpr std::size_t looked_at = 8;
  void* memory = take_passed(*shelf, looked_at);
  if (memory == nullptr) memory = allocate_fresh(*shelf, bytes, write_combined);
  count_up(counters.pinned_blocks);
  return memory;
}

bool give_back_pinned(void* pointer) noexcept {
  const Release mode = release_mode();
  if (mode == Release::never) {
    count_down(counters.pinned_blocks);
    return true;  // nobody will be handed anything out again
  }
  Pool& all = pool();
  Block* block = nullptr;
  {
    std::unique_lock lock{all.lock};
    block = all.find(address_of(pointer));
    if (block == nullptr || block->begin != address_of(pointer) || block->state != State::in_use) return false;
    count_down(counters.pinned_blocks);
    --all.statistics.blocks;
    all.statistics.in_use -= block->bytes;
    if (block->uses.empty() && !block->shelf->keeps) {
      forget(*block);
      lock.unlock();
      release_block(block);
      return true;
    }
    ++all.statistics.cached_blocks;
    all.statistics.cached += block->bytes;
    if (block->uses.empty()) {
      block->state = State::idle;
      block->next = std::exchange(block->shelf->idle, block);
      return true;
    }
    block->state = State::between;
  }
  // In a host function the events have to wait until a thread outside asks for a block.
  if (mode == Release::now)
    for (PendingUse& pending : block->uses) record(pending);
  const std::lock_guard lock{all.lock};
  block->state = State::pending;
  block->shelf->pending.push(block);
  return true;
}

void free_pinned(void* pointer) noexcept { static_cast<void>(give_back_pinned(pointer)); }

}  // namespace detail

void record_use(const void* pointer, StreamRef stream) {
  constexpr const char* operation = "record a use of pinned memory";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  {
    const std::lock_guard lock{detail::pool().lock};
    detail::Block* const block = detail::pool().find(detail::address_of(pointer));
    if (block != nullptr && block->state == detail::State::in_use) return detail::add_use(*block, {&slot, stream.id()});
  }
  detail::throw_error(errc::invalid_argument, operation, "the pointer is in no block in use of the pinned pool");
}

PinnedStatistics pinned_statistics() noexcept {
  const std::lock_guard lock{detail::pool().lock};
  return detail::pool().statistics;
}

void set_pinned_limit(std::size_t bytes) {
  bool over = false;
  {
    const std::lock_guard lock{detail::pool().lock};
    detail::pool().limit = bytes;
    over = detail::pool().held > bytes;
  }
  if (over) trim_pinned();
}

std::size_t pinned_limit() noexcept {
  const std::lock_guard lock{detail::pool().lock};
  return detail::pool().limit;
}

void trim_pinned() {
  detail::enter("give cached pinned memory back");
  detail::release_idle();
}

}  // namespace runnel::inline RUNNEL_ABI
