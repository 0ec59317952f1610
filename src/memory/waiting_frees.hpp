// SPDX-License-Identifier: Apache-2.0
/// Device memory that is to be freed, but waits for streams that no other stream can be made to wait for now. Such a stream is the default
/// stream of another thread. The memory is freed at a later allocation or free. To wait for the device instead would hold the caller, and
/// would break every capture.
#pragma once

#include "memory/pending_use.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstddef>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// Frees the memory once the work of these streams is complete; their counted uses end then. Leaks it if that will never be known.
/// @throws std::bad_alloc, and nothing has changed
void free_once_complete(void* pointer, int device, std::vector<PendingUse> uses);

inline constinit sync::Atomic<std::size_t> frees_waiting{0};
[[nodiscard]] inline bool are_frees_waiting() noexcept { return frees_waiting.load(std::memory_order_relaxed) > 0; }

/// Frees what can be freed now.
void run_complete_frees() noexcept;
/// Waits for all devices, and frees all. If the process has captured streams, it does nothing, because the wait would break a capture.
void run_all_frees() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
