// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <shared_mutex>

namespace runnel::inline RUNNEL_ABI {
namespace host {
namespace {

constexpr std::size_t alignment = 256;  // as the vendors' allocators promise

struct Block {
  std::size_t bytes;
  PointerInfo info;
  bool registered;  // belongs to somebody else
};

/// All blocks that were allocated or registered here, so that pinned, device and ordinary memory can be told apart.
struct Blocks {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, Block> by_address;
};
Blocks& blocks() {
  static Blocks& instance = *new Blocks;
  return instance;
}

[[nodiscard]] std::size_t rounded(std::size_t bytes) noexcept { return (bytes + alignment - 1) / alignment * alignment; }

driver::status allocate(void*& pointer, std::size_t bytes, PointerInfo info) {
  if (bytes > SIZE_MAX - alignment) return status_of(errc::out_of_memory);
  std::atomic<std::size_t>* const used = info.kind == MemoryKind::device ? &device_at(info.device.ordinal()).allocated : nullptr;
  if (used != nullptr && used->fetch_add(bytes, std::memory_order_relaxed) + bytes > memory_of_device()) {
    used->fetch_sub(bytes, std::memory_order_relaxed);
    return status_of(errc::out_of_memory);
  }
  void* const block = std::aligned_alloc(alignment, rounded(bytes));
  if (block == nullptr) {
    if (used != nullptr) used->fetch_sub(bytes, std::memory_order_relaxed);
    return status_of(errc::out_of_memory);
  }
  const std::lock_guard lock{blocks().mutex};
  blocks().by_address.emplace(reinterpret_cast<std::uintptr_t>(block), Block{bytes, info, false});
  pointer = block;
  return driver::ok;
}

/// Only the start of a block of that kind can be freed.
driver::status release(void* pointer, MemoryKind kind) {
  {
    const std::lock_guard lock{blocks().mutex};
    const auto place = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (place == blocks().by_address.end() || place->second.registered) return invalid_argument;
    const MemoryKind found = place->second.info.kind;
    if (found != kind && !(found == MemoryKind::managed && kind == MemoryKind::device)) return invalid_argument;
    if (found == MemoryKind::device)
      device_at(place->second.info.device.ordinal()).allocated.fetch_sub(place->second.bytes, std::memory_order_relaxed);
    blocks().by_address.erase(place);
  }
  std::free(pointer);
  return driver::ok;
}

driver::status mark_pinned(void* pointer, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock{blocks().mutex};
  const auto after = blocks().by_address.upper_bound(begin);
  if (after != blocks().by_address.end() && after->first < begin + bytes) return invalid_argument;
  if (after != blocks().by_address.begin()) {
    const auto& [start, block] = *std::prev(after);
    if (begin < start + block.bytes) return invalid_argument;
  }
  blocks().by_address.emplace_hint(after, begin, Block{bytes, {MemoryKind::pinned, Device{0}}, true});
  return driver::ok;
}

driver::status unmark_pinned(void* pointer) {
  const std::lock_guard lock{blocks().mutex};
  const auto place = blocks().by_address.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (place == blocks().by_address.end() || !place->second.registered) return invalid_argument;
  blocks().by_address.erase(place);
  return driver::ok;
}

}  // namespace
}  // namespace host

namespace driver {

using host::guarded;

status malloc_host(void*& pointer, std::size_t bytes) noexcept {
  return guarded([&] { return host::allocate(pointer, bytes, {MemoryKind::pinned, Device{0}}); });
}
status malloc_host_write_combined(void*& pointer, std::size_t bytes) noexcept { return malloc_host(pointer, bytes); }
status free_host(void* pointer) noexcept {
  return guarded([&] { return host::release(pointer, MemoryKind::pinned); });
}

status register_host(void* pointer, std::size_t bytes) noexcept {
  return guarded([&] { return host::mark_pinned(pointer, bytes); });
}
status unregister_host(void* pointer) noexcept {
  return guarded([&] { return host::unmark_pinned(pointer); });
}
status host_device_pointer(void*& on_device, void* on_host) noexcept {
  PointerInfo info{MemoryKind::pageable, Device{0}};
  static_cast<void>(pointer_info(info, on_host));
  if (info.kind != MemoryKind::pinned) return host::invalid_argument;
  on_device = on_host;
  return ok;
}

status malloc_device(void*& pointer, std::size_t bytes) noexcept {
  return guarded([&] { return host::allocate(pointer, bytes, {MemoryKind::device, Device{host::current_device()}}); });
}
status free_device(void* pointer) noexcept {
  if (const status s = device_synchronize(); s != ok) return s;
  return guarded([&] { return host::release(pointer, MemoryKind::device); });
}

status malloc_managed(void*& pointer, std::size_t bytes) noexcept {
  return guarded([&] { return host::allocate(pointer, bytes, {MemoryKind::managed, Device{host::current_device()}}); });
}

status malloc_async(void*& pointer, std::size_t bytes, native::stream stream) noexcept {
  return guarded([&] { return host::allocate(pointer, bytes, {MemoryKind::device, Device{host::resolve(stream).device}}); });
}
status free_async(void* pointer, native::stream stream) noexcept {
  return guarded([&] {
    host::submit_in_order(stream, [pointer] { static_cast<void>(host::release(pointer, MemoryKind::device)); });
    return ok;
  });
}

status set_release_threshold(int, std::size_t) noexcept { return host::status_of(errc::not_supported); }

status allow_pool_access(int, int, bool) noexcept { return ok; }  // every device reaches all memory

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

}  // namespace driver
}  // namespace runnel::inline RUNNEL_ABI
