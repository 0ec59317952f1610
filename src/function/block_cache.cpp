// SPDX-License-Identifier: Apache-2.0
/// Small memory blocks for objects that are created on one thread and destroyed on another.
#include <runnel/detail/host_function.hpp>

#include "base/announce.hpp"
#include "base/batch_cache.hpp"

#include <new>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr size_t block_bytes = 128;
// A small object then fits in one cache line, so that only one line moves between threads.
constexpr std::align_val_t line{64};
// No caching in a find_races build or under AddressSanitizer: the next user of a block would seem
// to race with the last one, and a use after free would touch a cached block.
#ifdef RUNNEL_NO_BLOCK_CACHE
constexpr bool caches = false;
#else
constexpr bool caches = !sync::finds_races;
#endif

struct FreeBlock : Batched<FreeBlock, 15> {};
static_assert(sizeof(FreeBlock) <= block_bytes);
using Cache = BatchCache<FreeBlock>;

}  // namespace

void* allocate_block(size_t bytes) {
  if (!caches || bytes > block_bytes) return ::operator new(bytes);
  if (FreeBlock* const block = Cache::take()) return block;
  return ::operator new(block_bytes, line);
}

void free_block(void* block, size_t bytes) noexcept {
  if (!caches || bytes > block_bytes) return ::operator delete(block);
  Cache::give(new (block) FreeBlock);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
