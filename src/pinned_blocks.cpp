// SPDX-License-Identifier: Apache-2.0
#include "pinned_blocks.hpp"

#include "spin_lock.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Block {
  std::uintptr_t begin;
  std::uintptr_t end;
};

// Never destroyed: static buffers ask and leave until the process ends.
struct Blocks {
  SpinLock lock;
  std::vector<Block> sorted;
};
Blocks& blocks() {
  static Blocks& instance = *new Blocks;
  return instance;
}

/// The first block that begins after the address. The lock is held.
[[nodiscard]] auto after(std::uintptr_t address) {
  return std::upper_bound(blocks().sorted.begin(), blocks().sorted.end(), address,
                          [](std::uintptr_t a, const Block& block) { return a < block.begin; });
}

}  // namespace

void add_pinned_block(const void* pointer, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock{blocks().lock};
  blocks().sorted.insert(after(begin), {begin, begin + bytes});
}

void remove_pinned_block(const void* pointer) noexcept {
  const std::lock_guard lock{blocks().lock};
  blocks().sorted.erase(after(reinterpret_cast<std::uintptr_t>(pointer)) - 1);
}

bool in_pinned_block(const void* pointer, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock{blocks().lock};
  const auto next = after(begin);
  return next != blocks().sorted.begin() && begin + bytes <= (next - 1)->end;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
