// SPDX-License-Identifier: Apache-2.0
/// What the runtime said of each device. Counts, priority ranges and attributes never change while
/// the process runs, so they are asked once.
#pragma once

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/sync.hpp"

#include <runnel/device.hpp>

#include <atomic>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

extern constinit sync::Atomic<int> known_device_count;  // 0 until asked

/// Asked once, and again while it is 0: a device may appear with another environment or driver.
[[nodiscard]] int device_count() noexcept;
[[nodiscard]] inline bool single_device() noexcept {
  return known_device_count.load(std::memory_order_relaxed) == 1;
}

/// @throws errc::no_device, errc::invalid_device
void require_device(int device, const char* operation);
[[nodiscard]] PriorityRange priority_range_of(int device, const char* operation);
// Attributes, asked once per device.
[[nodiscard]] bool has_memory_pools(int device);
[[nodiscard]] bool has_stream_values(int device);
[[nodiscard]] bool reads_host_page_tables(int device);
/// Bytes. The runtime, which takes 56 us to answer on an H200, is asked the first time only.
[[nodiscard]] std::size_t total_memory(int device);

/// Lets streams of `device` reach memory that was allocated in stream order on `owner`, if that is
/// another device, which `device` can reach at all. The runtimes require this for memory of their
/// pools; all other memory is reachable without it. Owner -1: no device's memory.
void reach(int device, int owner, const char* operation);
/// Makes the next `reach` ask the runtime again.
void forget_reach(int device, int owner) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
