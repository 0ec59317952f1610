// SPDX-License-Identifier: Apache-2.0
#include "memory/recorded_uses.hpp"

#include "backend.hpp"
#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/process.hpp"
#include "device/scoped_device.hpp"
#include "memory/pinned_pool.hpp"

#include <runnel/memory.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <mutex>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

/// Blocks begin at multiples of this, so that all addresses within one step belong to the same
/// block.
constexpr uintptr_t step = 256;

struct Recorded {
  sync::Mutex lock;
  std::map<uintptr_t, std::list<Point>>
      all;  // By the address that was recorded, rounded down to a step.
};
Recorded& recorded() { return never_destroyed<Recorded>(); }

/// Requires: the caller holds the lock.
void prune() noexcept {
  auto& all = recorded().all;
  for (auto each = all.begin(); each != all.end();) {
    erase_ended_points(each->second);
    each = each->second.empty() ? all.erase(each) : std::next(each);
  }
}

}  // namespace

void add_recorded_use(const void* pointer, StreamRef stream) {
  const uintptr_t key = reinterpret_cast<uintptr_t>(pointer) / step * step;
  const std::lock_guard lock{recorded().lock};
  auto& all = recorded().all;
  if (all.size() >= 16 && std::has_single_bit(all.size()) && !all.contains(key)) prune();
  if (!add_open_point(all[key], key_of(stream))) throw_dead_stream(stream.id());
  blocks_with_uses.store(all.size(), std::memory_order_relaxed);
}

std::list<Point> recorded_uses(const void* block, size_t bytes) {
  std::list<Point> found;
  const auto begin = reinterpret_cast<uintptr_t>(block);
  const std::lock_guard lock{recorded().lock};
  auto& all = recorded().all;
  for (auto each = all.lower_bound(begin); each != all.end() && each->first < begin + bytes; ++each)
    found.insert(found.end(), each->second.begin(), each->second.end());
  return found;
}

std::list<Point> take_recorded_uses_slowly(const void* block, size_t bytes,
                                           StreamKey own) noexcept {
  std::list<Point> taken;
  const auto begin = reinterpret_cast<uintptr_t>(block);
  {
    const std::lock_guard lock{recorded().lock};
    auto& all = recorded().all;
    const auto first = all.lower_bound(begin), end = all.lower_bound(begin + bytes);
    for (auto each = first; each != end; ++each) taken.splice(taken.end(), each->second);
    all.erase(first, end);
    blocks_with_uses.store(all.size(), std::memory_order_relaxed);
  }
  std::erase_if(taken, [&](const Point& user) { return user.stream() == own; });
  return taken;
}

void record_block_use(StreamRef stream, const void* pointer, std::optional<MemoryKind> kind) {
  constexpr const char* operation = "record a use of memory";
  enter(operation);
  Slot& slot = live_slot(stream);
  if (pointer == nullptr) throw_invalid_argument(operation, "the pointer is null");
  if ((!kind || *kind == MemoryKind::pinned) && note_pinned_use(pointer, 1, key_of(stream))) return;
  if (!kind) {
    const ScopedDevice on{slot.device, operation};
    PointerInfo info{MemoryKind::pageable, Device{0}};
    check(backend::pointer_info(info, pointer), operation);
    kind = info.kind;
  }
  if (*kind != MemoryKind::device)
    throw_invalid_argument(
        operation,
        "the pointer is neither in device memory nor in a block in use of the pinned pool");
  add_recorded_use(pointer, stream);
}

}  // namespace detail

void record_stream(StreamRef stream, const void* pointer) {
  detail::record_block_use(stream, pointer, std::nullopt);
}

}  // namespace runnel::inline RUNNEL_ABI
