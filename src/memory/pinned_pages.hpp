// SPDX-License-Identifier: Apache-2.0
/// Pinned memory, and how it is made fast. A runtime that allocates large pinned memory spends its
/// time on making pages, one thread and 4 KiB at a time (3 GB/s on an H200's host). So large blocks
/// are made here, of huge pages and by several threads, and registered then (20 GB/s).
#pragma once

#include <runnel/detail/backend.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

[[nodiscard]] backend::status allocate_pinned_pages(void*& memory, std::size_t bytes) noexcept;
[[nodiscard]] backend::status free_pinned_pages(void* memory) noexcept;

/// The bytes of the machine's memory.
[[nodiscard]] std::size_t machine_memory() noexcept;

/// Has several threads bring in the pages of memory that is about to be registered, as far as they
/// allow it. Changes no byte.
void populate_for_registration(void* memory, std::size_t bytes) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
