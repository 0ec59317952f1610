// SPDX-License-Identifier: Apache-2.0
/// What is known of each device once asked: the count and the priority range never change while the process runs.
#pragma once

#include "base/check.hpp"

#include <runnel/device.hpp>

#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

/// Devices beyond this are not shown; runtimes show 64 at most.
inline constexpr int max_devices = 64;

extern constinit std::atomic<int> known_device_count;  // 0 until asked

/// The count, asked once; 0 is asked again, since a device may turn up with the next environment or driver.
[[nodiscard]] int device_count() noexcept;
[[nodiscard]] inline bool single_device() noexcept { return known_device_count.load(std::memory_order_relaxed) == 1; }

/// @throws errc::no_device, errc::invalid_device
void require_device(int device, const char* operation);
[[nodiscard]] PriorityRange priority_range_of(int device, const char* operation);
// Attributes, asked once per device.
[[nodiscard]] bool has_memory_pools(int device);
[[nodiscard]] bool has_stream_values(int device);
[[nodiscard]] bool reads_host_page_tables(int device);

/// Lets streams of `device` reach what is allocated in stream order on the device that owns `pointer`, if it is another one that they can
/// reach at all: runtimes that give all other memory one address space ask for this by name. Costs nothing where there is one device.
void reach(int device, const void* pointer, const char* operation);
/// The next `reach` asks again.
void forget_reach(int device, int owner) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
