// SPDX-License-Identifier: Apache-2.0
#include "memory/recorded_uses.hpp"

#include "base/check.hpp"
#include "base/immortal.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/scoped_device.hpp"
#include "memory/pinned_shelves.hpp"

#include <runnel/detail/backend.hpp>
#include <runnel/memory.hpp>

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

/// Blocks begin at multiples of this, so that the addresses of one step are of one block.
constexpr std::uintptr_t step = 256;

struct Recorded {
  sync::Mutex lock;
  RecordedUses all;
};
Recorded& recorded() { return immortal<Recorded>(); }

}  // namespace

bool end_use_if_complete(StreamRef stream) noexcept {
  if (stream.valid() || poll_end(*use_of(stream).slot) != Progress::complete) return false;
  end_use(use_of(stream));
  return true;
}

void add_recorded_use(const void* pointer, StreamRef stream) {
  const std::uintptr_t key = reinterpret_cast<std::uintptr_t>(pointer) / step * step;
  RecordedUses fresh;
  fresh.emplace(key, stream);
  const RelaxedCapture relaxed;
  const std::lock_guard lock{recorded().lock};
  RecordedUses& all = recorded().all;
  const auto [first, last] = all.equal_range(key);
  if (std::any_of(first, last, [&](const auto& entry) { return entry.second == stream; })) return;
  if (!begin_use(use_of(stream))) throw_dead_stream(stream.id());
  if (all.size() >= 16 && std::has_single_bit(all.size()))
    std::erase_if(all, [](const auto& entry) { return end_use_if_complete(entry.second); });
  all.insert(fresh.extract(fresh.begin()));
  uses_recorded.store(all.size(), std::memory_order_relaxed);
}

RecordedUses take_recorded_uses_slowly(const void* block, std::size_t bytes) noexcept {
  RecordedUses taken;
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  const std::lock_guard lock{recorded().lock};
  RecordedUses& all = recorded().all;
  for (auto each = all.lower_bound(begin); each != all.end() && each->first < begin + bytes;) taken.insert(all.extract(each++));
  uses_recorded.store(all.size(), std::memory_order_relaxed);
  return taken;
}

void record_block_use(StreamRef stream, const void* pointer, std::optional<MemoryKind> kind) {
  constexpr const char* operation = "record a use of memory";
  enter(operation);
  Slot& slot = live_slot(stream);
  if (pointer == nullptr) throw_error(errc::invalid_argument, operation, "the pointer is null");
  if ((!kind || *kind == MemoryKind::pinned) && pinned_shelves().try_add_use(pointer, {&slot, stream.id()})) return;
  if (!kind) {
    const ScopedDevice on{slot.device, operation};
    PointerInfo info{MemoryKind::pageable, Device{0}};
    check(backend::pointer_info(info, pointer), operation);
    kind = info.kind;
  }
  if (*kind != MemoryKind::device)
    throw_error(errc::invalid_argument, operation, "the pointer is neither in device memory nor in a block in use of the pinned pool");
  add_recorded_use(pointer, stream);
}

}  // namespace detail

void record_stream(StreamRef stream, const void* pointer) { detail::record_block_use(stream, pointer, std::nullopt); }

}  // namespace runnel::inline RUNNEL_ABI
