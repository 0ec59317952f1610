// SPDX-License-Identifier: Apache-2.0
/// An operator new that fails on request.
#include <cstdlib>
#include <new>

#include "interpret.hpp"

namespace {
thread_local constinit long allocations_left = -1;  // -1: none fails
}  // namespace

void* operator new(std::size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc{};
  if (void* const block = std::malloc(bytes > 0 ? bytes : 1)) return block;
  throw std::bad_alloc{};
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace random_programs {

AllocationFault::AllocationFault(unsigned number) noexcept { allocations_left = number; }
AllocationFault::~AllocationFault() { allocations_left = -1; }

}  // namespace random_programs
