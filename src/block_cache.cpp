// SPDX-License-Identifier: Apache-2.0
/// Small blocks that one thread allocates and another frees, again and again. The general allocator makes the two threads meet at a
/// lock each time; here whole batches change hands.
#include <runnel/detail/host_function.hpp>

#include <atomic>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr std::size_t block_bytes = 128;
constexpr int batch = 32;

struct Free {
  Free* next;
};
/// A list of blocks; a batch in the common stack is chained by `next_batch`, kept in the first block.
struct FreeBatch : Free {
  FreeBatch* next_batch;
};

constinit std::atomic<FreeBatch*> common{nullptr};

void give(Free* blocks) noexcept {
  auto* const first = static_cast<FreeBatch*>(blocks);
  first->next_batch = common.load(std::memory_order_relaxed);
  while (!common.compare_exchange_weak(first->next_batch, first, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

/// The calling thread's blocks: what it allocates from, and what it has freed, a batch at most.
struct Own {
  Free* blocks = nullptr;
  FreeBatch* batches = nullptr;  // more of them
  Free* freed = nullptr;
  int freed_count = 0;

  ~Own() {
    if (blocks != nullptr) give(std::exchange(blocks, nullptr));
    while (batches != nullptr) give(std::exchange(batches, batches->next_batch));
    if (freed != nullptr) give(std::exchange(freed, nullptr));
    freed_count = 0;
  }
};
thread_local constinit Own own;

}  // namespace

void* allocate_block(std::size_t bytes) {
  if (bytes > block_bytes) return ::operator new(bytes);
  if (own.blocks == nullptr) {
    // All batches are taken at once: none can come back between reading the top of the stack and taking it.
    if (own.batches == nullptr) own.batches = common.exchange(nullptr, std::memory_order_acquire);
    if (own.batches == nullptr) return ::operator new(block_bytes);
    own.blocks = std::exchange(own.batches, own.batches->next_batch);
  }
  return std::exchange(own.blocks, own.blocks->next);
}

void free_block(void* block, std::size_t bytes) noexcept {
  if (bytes > block_bytes) return ::operator delete(block);
  own.freed = new (block) FreeBatch{{own.freed}, nullptr};
  if (++own.freed_count < batch) return;
  give(std::exchange(own.freed, nullptr));
  own.freed_count = 0;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
