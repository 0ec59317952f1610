// SPDX-License-Identifier: Apache-2.0
/// Fast allocation of large pinned blocks. A runtime creates their pages on one thread, 4 KiB at a
/// time (3 GB/s on an H200's host). Here, several threads create huge pages, which are then
/// registered (20 GB/s).
#pragma once

#include "backend.hpp"

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

[[nodiscard]] backend::status allocate_pinned_pages(void*& memory, size_t bytes) noexcept;
[[nodiscard]] backend::status free_pinned_pages(void* memory) noexcept;

/// The size of the machine's memory in bytes.
size_t machine_memory() noexcept;

/// Populates, with several threads, the pages of memory that is about to be registered, if their
/// access rights permit it. Does not change their contents.
void populate_for_registration(void* memory, size_t bytes) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
