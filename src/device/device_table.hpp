// SPDX-License-Identifier: Apache-2.0
/// Cached properties of each device. Counts, priority ranges and attributes never change while the
/// process runs, so they are queried once.
#pragma once

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/sync.hpp"

#include <runnel/device.hpp>

#include <atomic>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

extern constinit sync::Atomic<int> known_device_count;  // 0 until queried

/// Queried once, and again while it is 0: the next query may find a device.
int device_count() noexcept;
inline bool single_device() noexcept {
  return known_device_count.load(std::memory_order_relaxed) == 1;
}

/// @throws errc::no_device, errc::invalid_device
void require_device(int device, const char* operation);
[[nodiscard]] PriorityRange priority_range_of(int device, const char* operation);
// Attributes, queried once per device.
bool has_memory_pools(int device);
bool has_stream_values(int device);
bool accesses_pageable_memory(int device);
bool reads_host_page_tables(int device);
/// In bytes. Queried once, because the runtime needs 56 us on an H200.
size_t total_memory(int device);

/// Grants streams of `device` access to memory that was allocated in stream order on `owner`, if
/// `device` can access that device at all. The runtimes require this for memory of their pools
/// only. Owner -1: the memory belongs to no device.
void grant_pool_access(int device, int owner, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
