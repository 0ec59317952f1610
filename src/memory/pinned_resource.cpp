// SPDX-License-Identifier: Apache-2.0
#include <runnel/pinned_resource.hpp>

#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "memory/pinned_pool.hpp"

#include <algorithm>
#include <memory>

namespace runnel::inline RUNNEL_ABI {

using namespace detail;
namespace {

// What the blocks of the runtimes are aligned to at least, and in fact.
constexpr size_t promised_alignment = 256;
constexpr size_t usual_alignment = 4096;

class PinnedResource final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t alignment) override {
    for (size_t more = alignment <= usual_alignment ? 0 : alignment;; more = alignment) {
      size_t space = 0;
      if (__builtin_add_overflow(std::max<size_t>(bytes, 1), more, &space)) space = bytes;
      void* const block = allocate_pinned(space, false);
      if (void* aligned = block; std::align(alignment, bytes, aligned, space) != nullptr)
        return aligned;
      free_pinned(block);
    }
  }
  void do_deallocate(void* pointer, size_t, size_t alignment) override {
    void* const block = alignment <= promised_alignment ? pointer : pinned_block_of(pointer);
    if (!deallocate_pinned(block))
      throw_error(errc::invalid_argument, "give pinned memory back",
                  "the pointer is not the start of a block in use: it is foreign, or was "
                  "given back before");
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace

std::pmr::memory_resource* pinned_resource() noexcept { return &never_destroyed<PinnedResource>(); }

}  // namespace runnel::inline RUNNEL_ABI
