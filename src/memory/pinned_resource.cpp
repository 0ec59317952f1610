// SPDX-License-Identifier: Apache-2.0
#include <runnel/pinned_resource.hpp>

#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "memory/pinned_pool.hpp"

#include <algorithm>

namespace runnel { inline namespace RUNNEL_ABI {

using namespace detail;
namespace {

constexpr std::size_t promised_alignment = 256;

class PinnedResource final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (alignment > promised_alignment)
      throw_error(errc::invalid_argument, "allocate pinned memory",
                  "blocks are aligned to 256 bytes, and no further");
    return allocate_pinned(std::max<std::size_t>(bytes, 1), false);
  }
  void do_deallocate(void* pointer, std::size_t, std::size_t) override {
    if (!deallocate_pinned(pointer))
      throw_error(errc::invalid_argument, "give pinned memory back",
                  "the pointer is not the start of a block in use: it is foreign, or was "
                  "given back before");
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace

std::pmr::memory_resource* pinned_resource() noexcept { return &never_destroyed<PinnedResource>(); }

}}  // namespace runnel::RUNNEL_ABI
