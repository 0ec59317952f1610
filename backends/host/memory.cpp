// SPDX-License-Identifier: Apache-2.0
#include "base/announce.hpp"
#include "base/never_destroyed.hpp"
#include "base/sync.hpp"
#include "capture.hpp"
#include "shared_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace host {
namespace {

constexpr std::size_t alignment = 256;  // the guarantee of the vendors' allocators

struct Block {
  std::size_t bytes;
  PointerInfo info;
  bool registered = false;     // the user's own memory, which is not freed here
  bool of_graph = false;       // allocated in a capture: its GraphMemory frees it
  bool freed_by_user = false;  // freed by the user, for a block of a graph
  SharedMemory shared{};       // the memory itself, if it is shared with other processes

  // Set when the free is enqueued.
  // The queue of the free. Null: no task could be enqueued, and the block is freed when its device
  // is idle.
  TaskQueuePtr queue{};
  std::uint64_t number = 0;  // of the task
  std::size_t claimed = 0;   // bytes that later allocations use
  bool freeing = false;
  bool listed = false;  // in the list of pending frees, between these neighbours
  Block* older = nullptr;
  Block* newer = nullptr;
};
using BlockMap = std::map<std::uintptr_t, Block>;

/// A device's blocks with enqueued frees and unclaimed bytes, in the order of the calls. Allocates
/// nothing.
class PendingFrees {
 public:
  [[nodiscard]] Block* oldest() const noexcept { return oldest_; }
  void add(Block& block) noexcept {
    block.listed = true;
    block.older = newest_;
    (newest_ == nullptr ? oldest_ : newest_->newer) = &block;
    newest_ = &block;
  }
  void remove(Block& block) noexcept {
    if (!std::exchange(block.listed, false)) return;
    (block.older == nullptr ? oldest_ : block.older->newer) = block.newer;
    (block.newer == nullptr ? newest_ : block.newer->older) = block.older;
    block.older = nullptr;
    block.newer = nullptr;
  }

 private:
  Block* oldest_ = nullptr;
  Block* newest_ = nullptr;
};

/// All blocks that were allocated or registered here. All other memory is pageable.
struct Blocks {
  sync::SharedMutex mutex;
  BlockMap by_address;
  std::array<PendingFrees, detail::max_devices> pending;  // by device
  sync::Atomic<std::size_t> without_task{0};  // the number of frees that wait for an idle device
};
Blocks& blocks() { return detail::never_destroyed<Blocks>(); }
[[nodiscard]] PendingFrees& pending_of(int device) {
  return blocks().pending[static_cast<std::size_t>(device)];
}

struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

[[nodiscard]] std::size_t round_up(std::size_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Allocates memory for free(). Requests huge pages for large blocks: the first access to each page
/// costs a page fault, and 64 MiB have 16,384 small pages.
[[nodiscard]] void* allocate_pages(std::size_t bytes) noexcept {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  if (bytes < huge_page) return std::aligned_alloc(alignment, round_up(bytes));
  void* memory = nullptr;
  if (::posix_memalign(&memory, huge_page, bytes) != 0) return nullptr;
  // Only a hint: errors are ignored.
  static_cast<void>(::madvise(memory, bytes / huge_page * huge_page, MADV_HUGEPAGE));
  return memory;
}

/// Removes a block from all tables; the caller frees its memory. Requires: the lock is held.
[[nodiscard]] BlockMap::node_type extract_block(BlockMap::iterator entry) noexcept {
  Block& block = entry->second;
  if (block.info.kind == MemoryKind::device) {
    const int device = block.info.device.ordinal();
    device_at(device).allocated.fetch_sub(block.bytes - block.claimed, std::memory_order_relaxed);
    pending_of(device).remove(block);
  }
  return blocks().by_address.extract(entry);
}

[[nodiscard]] bool is_device_idle(int ordinal) {
  HostDevice& device = device_at(ordinal);
  const std::lock_guard lock{device.mutex};
  return !device.has_stream(
      [](const native::host_stream* stream) { return !stream->queue->is_idle(); });
}

/// Frees the blocks whose free could not be enqueued, if their device is idle: all work before the
/// frees is then complete.
void free_without_task(int device) {
  if (blocks().without_task.load(std::memory_order_relaxed) == 0 || !is_device_idle(device)) return;
  // ThreadSanitizer does not know that the streams no longer use the block.
  const sync::TsanIgnore ignore;
  const std::lock_guard lock{blocks().mutex};
  for (auto entry = blocks().by_address.begin(); entry != blocks().by_address.end();) {
    const auto current = entry++;
    const Block& block = current->second;
    if (!block.freeing || block.queue != nullptr || block.info.device.ordinal() != device) continue;
    const Memory memory{reinterpret_cast<void*>(current->first)};
    static_cast<void>(extract_block(current));
    blocks().without_task.fetch_sub(1, std::memory_order_relaxed);
  }
}

[[nodiscard]] std::size_t unused_bytes(const HostDevice& device) noexcept {
  const std::size_t total = memory_of_device();
  return total - std::min(total, device.allocated.load(std::memory_order_relaxed));
}

[[nodiscard]] bool try_reserve(HostDevice& device, std::size_t bytes) noexcept {
  const std::size_t total = memory_of_device();
  std::size_t used = device.allocated.load(std::memory_order_relaxed);
  while (used <= total && bytes <= total - used)
    if (device.allocated.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed))
      return true;
  return false;
}

/// Calls `claim(block, bytes)` for pending frees until they yield `missing` bytes: first those of
/// the queue `own`, then the others, the oldest first. Returns the number of bytes that are still
/// missing. Requires: the lock is held.
template <class F>
std::size_t for_each_claim(int device, const TaskQueue* own, std::size_t missing, F claim) {
  for (const bool of_own : {true, false})
    for (Block *block = pending_of(device).oldest(), *next = nullptr;
         block != nullptr && missing > 0; block = next) {
      next = block->newer;
      if ((block->queue.get() == own) != of_own) continue;
      const std::size_t part = std::min(missing, block->bytes - block->claimed);
      missing -= part;
      claim(*block, part);
    }
  return missing;
}

/// Reserves unused bytes, up to `bytes`, if pending frees yield the rest. Returns the size of the
/// rest; nothing if there is not enough. Requires: the lock is held.
[[nodiscard]] std::optional<std::size_t> reserve_unused(int ordinal, const TaskQueue& queue,
                                                        std::size_t bytes) {
  HostDevice& device = device_at(ordinal);
  std::size_t missing = 0;
  do {  // again if another thread takes unused memory meanwhile
    missing = bytes - std::min(bytes, unused_bytes(device));
    if (for_each_claim(ordinal, &queue, missing, [](Block&, std::size_t) {}) > 0)
      return std::nullopt;
  } while (!try_reserve(device, bytes - missing));
  return missing;
}

/// Reserves memory for an allocation in stream order, which may reuse memory with an enqueued free.
/// Frees of the same stream are ordered before the allocation anyway; for frees of other streams,
/// the stream waits. False if there is not enough memory.
[[nodiscard]] bool reserve_in_order(int ordinal, TaskQueue& queue, std::size_t bytes) {
  HostDevice& device = device_at(ordinal);
  if (try_reserve(device, bytes)) return true;
  const std::lock_guard lock{blocks().mutex};
  const std::optional<std::size_t> unreserved = reserve_unused(ordinal, queue, bytes);
  if (!unreserved) return false;
  const std::size_t missing = *unreserved;
  try {
    for_each_claim(ordinal, &queue, missing, [&](Block& block, std::size_t) {
      queue.submit_wait({block.queue, block.number});
    });
  } catch (const std::bad_alloc&) {
    device.allocated.fetch_sub(bytes - missing, std::memory_order_relaxed);
    throw;
  }
  for_each_claim(ordinal, &queue, missing, [&](Block& block, std::size_t part) {
    block.claimed += part;
    if (block.claimed == block.bytes) pending_of(ordinal).remove(block);
  });
  return true;
}

/// The oldest pending free, if the pending frees together yield the missing bytes; else nothing. A
/// Wait without a queue if no bytes are missing any more.
[[nodiscard]] std::optional<Wait> find_oldest_free(int ordinal, std::size_t bytes) {
  const std::shared_lock lock{blocks().mutex};
  const std::size_t missing = bytes - std::min(bytes, unused_bytes(device_at(ordinal)));
  Wait oldest;
  const auto note_first = [&](const Block& block, std::size_t) {
    if (oldest.queue == nullptr) oldest = Wait{block.queue, block.number};
  };
  if (for_each_claim(ordinal, nullptr, missing, note_first) > 0) return std::nullopt;
  return oldest;
}

/// Reserves memory for an allocation that is used at once: blocks until enough pending frees are
/// complete, the oldest first. False if there is not enough memory.
[[nodiscard]] bool reserve_now(int ordinal, std::size_t bytes) {
  HostDevice& device = device_at(ordinal);
  while (!try_reserve(device, bytes)) {
    const std::optional<Wait> oldest = find_oldest_free(ordinal, bytes);
    if (!oldest) return false;
    if (oldest->queue != nullptr) oldest->queue->wait_until(oldest->until, false);
  }
  return true;
}

/// `reserve` reserves the device's memory; it returns false if there is not enough.
template <class F>
backend::status allocate(void*& pointer, std::size_t bytes, PointerInfo info, F reserve) {
  const bool on_device = info.kind == MemoryKind::device;
  if (bytes > SIZE_MAX - alignment || (on_device && bytes > memory_of_device()))
    return status_of(errc::out_of_memory);
  if (on_device) free_without_task(info.device.ordinal());
  Memory memory{allocate_pages(bytes)};
  if (memory == nullptr) return status_of(errc::out_of_memory);
  BlockMap single;  // allocated before `reserve`, because this may fail
  single.emplace(reinterpret_cast<std::uintptr_t>(memory.get()), Block{bytes, info, false});
  if (!reserve()) return status_of(errc::out_of_memory);
  const std::lock_guard lock{blocks().mutex};
  blocks().by_address.insert(single.extract(single.begin()));
  pointer = memory.release();
  return backend::ok;
}
backend::status allocate(void*& pointer, std::size_t bytes, PointerInfo info) {
  return allocate(pointer, bytes, info, [] { return true; });
}

/// Adds memory that several processes use. `counted`: it counts as memory of this device.
backend::status add_shared(void*& pointer, SharedMemory memory, bool counted) {
  const int device = current_device();
  const std::size_t bytes = memory.size();
  BlockMap single;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  single.emplace(begin, Block{.bytes = bytes,
                              .info = {MemoryKind::device, Device{device}},
                              .shared = std::move(memory)});
  if (counted && !reserve_now(device, bytes)) return status_of(errc::out_of_memory);
  // Not counted here, so nothing is subtracted when it is closed.
  if (!counted) single.begin()->second.claimed = bytes;
  const std::lock_guard lock{blocks().mutex};
  blocks().by_address.insert(single.extract(single.begin()));
  pointer = reinterpret_cast<void*>(begin);
  return backend::ok;
}

/// Removes a block that another process has created.
backend::status close_opened(void* pointer) {
  BlockMap::node_type block;
  const std::lock_guard lock{blocks().mutex};
  const auto entry = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (entry == blocks().by_address.end() || !entry->second.shared.is_opened())
    return invalid_argument;
  block = extract_block(entry);
  return backend::ok;
}

/// The block at this address, if it has this kind and can be freed. Requires: the lock is held.
[[nodiscard]] BlockMap::iterator find_to_free(void* pointer, MemoryKind kind) noexcept {
  const auto none = blocks().by_address.end();
  const auto entry = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (entry == none || entry->second.registered || entry->second.freeing ||
      entry->second.shared.is_opened())
    return none;
  const MemoryKind found = entry->second.info.kind;
  return found == kind || (found == MemoryKind::managed && kind == MemoryKind::device) ? entry
                                                                                       : none;
}

/// A graph keeps its memory, because it may be launched again.
[[nodiscard]] bool mark_freed_if_of_graph(Block& block) noexcept {
  if (block.of_graph) block.freed_by_user = true;
  return block.of_graph;
}

backend::status release(void* pointer, MemoryKind kind) {
  BlockMap::node_type block;
  {
    const std::lock_guard lock{blocks().mutex};
    const auto entry = find_to_free(pointer, kind);
    if (entry == blocks().by_address.end()) return invalid_argument;
    if (mark_freed_if_of_graph(entry->second)) return backend::ok;
    block = extract_block(entry);
  }
  if (!block.mapped().shared) std::free(pointer);
  return backend::ok;
}

/// The task of an enqueued free.
void finish_free(void* pointer) noexcept {
  BlockMap::node_type block;
  {
    const std::lock_guard lock{blocks().mutex};
    block = extract_block(blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer)));
  }
  if (!block.mapped().shared) std::free(pointer);
}

/// Enqueues the block's free. Without memory for the task, the block has no queue afterwards.
/// Requires: the lock is held.
void try_submit_free(void* pointer, Block& block, native::host_stream& stream) noexcept {
  try {
    block.number = stream.queue->submit([pointer] { finish_free(pointer); });
    block.queue = stream.queue;
  } catch (const std::bad_alloc&) {
  }
}

/// Enqueues a free. Without memory for the task or for the stream (null), the block is freed when
/// its device is idle: a free never fails for lack of memory.
backend::status release_in_order(void* pointer, native::host_stream* stream) {
  std::optional<OrderedSubmission> in_order;
  if (stream != nullptr) try {
      stream->queue->wait_for_room();
      in_order.emplace(*stream);
    } catch (const std::bad_alloc&) {
    }
  const std::lock_guard lock{blocks().mutex};
  const auto entry = find_to_free(pointer, MemoryKind::device);
  if (entry == blocks().by_address.end()) return invalid_argument;
  Block& block = entry->second;
  if (mark_freed_if_of_graph(block)) return backend::ok;
  if (in_order) try_submit_free(pointer, block, *stream);
  block.freeing = true;
  if (block.queue == nullptr)
    blocks().without_task.fetch_add(1, std::memory_order_relaxed);
  else if (block.info.kind == MemoryKind::device)
    pending_of(block.info.device.ordinal()).add(block);
  return backend::ok;
}

/// Frees memory in a capture: adds a node. Only memory of a graph can be freed this way. Nothing if
/// the stream is not captured.
std::optional<backend::status> release_in_capture(void* pointer, native::host_stream& stream) {
  if (capture_number(stream) == 0) return status_of(backend::CaptureFault::broken);
  {
    const std::shared_lock lock{blocks().mutex};
    const auto entry = find_to_free(pointer, MemoryKind::device);
    if (entry == blocks().by_address.end() || !entry->second.of_graph) return invalid_argument;
  }
  const std::optional<backend::status> answer = capture_node(stream, {backend::NodeKind::free, {}});
  if (answer != backend::ok) return answer;
  const std::lock_guard lock{blocks().mutex};
  static_cast<void>(mark_freed_if_of_graph(find_to_free(pointer, MemoryKind::device)->second));
  return answer;
}

/// Gives the block to the stream's graph. Nothing if the stream is not captured. Frees the block if
/// the graph does not accept it.
std::optional<backend::status> give_to_graph(void*& pointer, native::host_stream& stream) try {
  const std::optional<backend::status> answer = capture_allocation(stream, pointer);
  if (!answer) return answer;
  if (*answer != backend::ok) {
    static_cast<void>(release(std::exchange(pointer, nullptr), MemoryKind::device));
    return answer;
  }
  const std::lock_guard lock{blocks().mutex};
  blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer))->second.of_graph = true;
  return answer;
} catch (const std::bad_alloc&) {
  static_cast<void>(release(std::exchange(pointer, nullptr), MemoryKind::device));
  throw;
}

backend::status register_pinned(void* pointer, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock{blocks().mutex};
  const auto after = blocks().by_address.upper_bound(begin);
  if (after != blocks().by_address.end() && after->first < begin + bytes) return invalid_argument;
  if (after != blocks().by_address.begin()) {
    const auto& [start, block] = *std::prev(after);
    if (begin < start + block.bytes) return invalid_argument;
  }
  blocks().by_address.emplace_hint(after, begin,
                                   Block{bytes, {MemoryKind::pinned, Device{0}}, true});
  return backend::ok;
}

backend::status unregister_pinned(void* pointer) {
  const std::lock_guard lock{blocks().mutex};
  const auto entry = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (entry == blocks().by_address.end() || !entry->second.registered) return invalid_argument;
  blocks().by_address.erase(entry);
  return backend::ok;
}

}  // namespace

GraphMemory::~GraphMemory() {
  for (void* const pointer : blocks_) {
    {
      const std::lock_guard lock{blocks().mutex};
      Block& block = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer))->second;
      block.of_graph = false;
      if (!block.freed_by_user) continue;
    }
    static_cast<void>(release(pointer, MemoryKind::device));
  }
}

}  // namespace host

namespace backend {

using host::catch_bad_alloc;

status malloc_host(void*& pointer, std::size_t bytes) noexcept {
  return catch_bad_alloc(
      [&] { return host::allocate(pointer, bytes, {MemoryKind::pinned, Device{0}}); });
}
status malloc_host_write_combined(void*& pointer, std::size_t bytes) noexcept {
  return malloc_host(pointer, bytes);
}
status free_host(void* pointer) noexcept {
  return catch_bad_alloc([&] { return host::release(pointer, MemoryKind::pinned); });
}

bool frees_wait_for_devices() noexcept { return false; }
bool prefers_registered_pages() noexcept { return false; }  // Pages are created at first use.

status register_host(void* pointer, std::size_t bytes) noexcept {
  return catch_bad_alloc([&] { return host::register_pinned(pointer, bytes); });
}
status register_host_read_only(void* pointer, std::size_t bytes) noexcept {
  return register_host(pointer, bytes);
}
status unregister_host(void* pointer) noexcept {
  return catch_bad_alloc([&] { return host::unregister_pinned(pointer); });
}
status host_device_pointer(void*& on_device, void* on_host) noexcept {
  PointerInfo info{MemoryKind::pageable, Device{0}};
  static_cast<void>(pointer_info(info, on_host));
  if (info.kind != MemoryKind::pinned) return host::invalid_argument;
  on_device = on_host;
  return ok;
}

status malloc_device(void*& pointer, std::size_t bytes) noexcept {
  return catch_bad_alloc([&] {
    const int device = host::current_device();
    return host::allocate(pointer, bytes, {MemoryKind::device, Device{device}},
                          [&] { return host::reserve_now(device, bytes); });
  });
}
status free_device(void* pointer) noexcept {
  if (const status s = device_synchronize(); s != ok) return s;
  return catch_bad_alloc([&] { return host::release(pointer, MemoryKind::device); });
}

status malloc_exportable(void*& pointer, std::size_t bytes) noexcept {
  if (bytes > host::memory_of_device()) return host::status_of(errc::out_of_memory);
  return catch_bad_alloc(
      [&] { return host::add_shared(pointer, host::SharedMemory::make(bytes), true); });
}

status export_memory(IpcBytes& handle, void* pointer) noexcept {
  const std::shared_lock lock{host::blocks().mutex};
  const auto entry = host::blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer));
  const bool is_own = entry != host::blocks().by_address.end() && entry->second.shared &&
                      !entry->second.shared.is_opened();
  if (!is_own) return host::invalid_argument;
  entry->second.shared.write_handle(handle);
  return ok;
}

status open_memory(void*& pointer, const IpcBytes& handle) noexcept {
  return catch_bad_alloc([&] {
    host::SharedMemory memory;
    if (const status s = host::SharedMemory::open(memory, handle); s != ok) return s;
    return host::add_shared(pointer, std::move(memory), false);
  });
}

status close_memory(void* pointer) noexcept {
  return catch_bad_alloc([&] { return host::close_opened(pointer); });
}

status malloc_managed(void*& pointer, std::size_t bytes) noexcept {
  return catch_bad_alloc([&] {
    return host::allocate(pointer, bytes, {MemoryKind::managed, Device{host::current_device()}});
  });
}

// Host and devices share one memory: prefetches and advice have no effect.
status prefetch_async(const void*, std::size_t, int, native::stream) noexcept { return ok; }
status advise(const void*, std::size_t, MemoryAdvice, int) noexcept { return ok; }

status malloc_async(void*& pointer, std::size_t bytes, int, native::stream handle) noexcept {
  return catch_bad_alloc([&] {
    native::host_stream& stream = host::resolve(handle);
    // In a capture the memory is allocated at once, and does not reuse memory with an enqueued
    // free.
    const bool captured = stream.is_captured();
    const status s =
        host::allocate(pointer, bytes, {MemoryKind::device, Device{stream.device}}, [&] {
          return captured ? host::try_reserve(host::device_at(stream.device), bytes)
                          : host::reserve_in_order(stream.device, *stream.queue, bytes);
        });
    if (s != ok || !captured) return s;
    return host::give_to_graph(pointer, stream).value_or(ok);
  });
}
status free_async(void* pointer, native::stream stream) noexcept {
  native::host_stream* on = nullptr;
  try {
    on = &host::resolve(stream);
  } catch (const std::bad_alloc&) {  // no memory to create a default stream at its first use
  }
  return catch_bad_alloc([&] {
    if (on != nullptr && on->is_captured()) [[unlikely]]
      if (const auto answer = host::release_in_capture(pointer, *on)) return *answer;
    return host::release_in_order(pointer, on);
  });
}

status memory_info(std::size_t& free, std::size_t& total, int device) noexcept {
  total = host::memory_of_device();
  const std::size_t used = host::device_at(device).allocated.load(std::memory_order_relaxed);
  free = total - std::min(used, total);
  return ok;
}

// The host backend caches no freed memory, so each threshold holds.
status set_release_threshold(int, std::size_t) noexcept { return ok; }

status pool_reserved(int device, std::size_t& bytes) noexcept {
  bytes = host::device_at(device).allocated.load(std::memory_order_relaxed);
  return ok;
}

status trim_pool(int) noexcept { return ok; }

// each device can access all memory
status allow_pool_access(int, int, bool) noexcept { return ok; }

status pointer_info(PointerInfo& info, const void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::shared_lock lock{host::blocks().mutex};
  const auto after = host::blocks().by_address.upper_bound(address);
  info = {MemoryKind::pageable, Device{0}};
  if (after == host::blocks().by_address.begin()) return ok;
  const auto& [start, block] = *std::prev(after);
  if (address < start + block.bytes) info = block.info;
  return ok;
}

}  // namespace backend
}  // namespace runnel::inline RUNNEL_ABI
