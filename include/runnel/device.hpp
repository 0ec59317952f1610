// SPDX-License-Identifier: Apache-2.0
/// Devices: what there is, what it can do, and which one this thread uses.
#pragma once

#include <runnel/config.hpp>

#include <compare>
#include <cstddef>
#include <iosfwd>
#include <string>

namespace runnel::inline RUNNEL_ABI {

class StreamRef;

/// The priorities of a device's streams. Lower numbers are more urgent, so `greatest <= least`.
struct PriorityRange {
  int least;     ///< the least urgent, numerically largest
  int greatest;  ///< the most urgent, numerically smallest

  /// Whether the device has this priority.
  [[nodiscard]] constexpr bool contains(int priority) const noexcept { return greatest <= priority && priority <= least; }
  /// The nearest priority that the device has.
  [[nodiscard]] constexpr int clamp(int priority) const noexcept {
    return priority < greatest ? greatest : priority > least ? least : priority;
  }
  /// False where the device has one level only, {0, 0}.
  [[nodiscard]] constexpr bool supported() const noexcept { return greatest < least; }
  friend constexpr bool operator==(PriorityRange, PriorityRange) noexcept = default;
};

/// Bytes of device memory.
struct MemoryInfo {
  std::size_t free;   ///< not allocated by anybody
  std::size_t total;  ///< of the device
};

/// A device by its ordinal: a small value. Making one asks nothing; every member below throws `errc::invalid_device` where no
/// device has that ordinal and `errc::no_device` where there is none at all, and leaves the current device as it found it.
class Device {
 public:
  /// The device with this ordinal, counted from 0.
  explicit constexpr Device(int ordinal) noexcept : ordinal_{ordinal} {}

  /// How many devices there are: 0 is an answer, also without a driver.
  [[nodiscard]] static int count();
  /// Why `count()` is 0, in one line that says what to do; "" where it is not.
  [[nodiscard]] static std::string why_no_device();
  /// The calling thread's current device.
  [[nodiscard]] static Device current();
  /// Makes this the calling thread's current device.
  void use() const;

  /// Its number, counted from 0.
  [[nodiscard]] constexpr int ordinal() const noexcept { return ordinal_; }
  /// As the vendor calls it.
  [[nodiscard]] std::string name() const;
  /// What it has, and what of it is free at this moment.
  [[nodiscard]] MemoryInfo memory_info() const;
  /// What its streams can have.
  [[nodiscard]] PriorityRange priority_range() const;

  /// Copy engines: 0 copies do not overlap kernels, 1 one direction at a time, 2 both at once.
  [[nodiscard]] int async_engine_count() const;
  /// Processors that run blocks of kernels; on the host backend those of the machine.
  [[nodiscard]] int multiprocessor_count() const;
  /// Hardware queues that streams share; more busy streams than this may wait for each other. 0 where the runtime does not say.
  [[nodiscard]] int hardware_queues() const;
  /// Kernels can reach pinned host memory without a copy.
  [[nodiscard]] bool can_map_host_memory() const;
  /// The device can read ordinary host memory through its own means.
  [[nodiscard]] bool has_pageable_memory_access() const;
  /// The device reads ordinary host memory through the host's page tables, so that nothing is gained by pinning.
  [[nodiscard]] bool pageable_memory_access_uses_host_page_tables() const;
  /// Streams can wait for and write values in memory.
  [[nodiscard]] bool has_stream_memory_operations() const;
  /// Memory can be allocated and freed in stream order.
  [[nodiscard]] bool has_memory_pools() const;

  /// Whether this device can read and write the peer's memory directly.
  [[nodiscard]] bool can_access_peer(Device peer) const;
  /// Lets this device reach the peer's memory; asking twice is fine. @throws errc::peer_access where it cannot.
  void enable_peer_access(Device peer) const;
  /// Ends it; that it was not enabled is fine.
  void disable_peer_access(Device peer) const;

  /// Waits for everything submitted to this device, on every stream.
  void synchronize() const;
  /// The device's default stream: the platform's null stream, which orders with streams made `blocking`.
  [[nodiscard]] StreamRef default_stream() const;

  // Not defaulted: nvcc calls a defaulted one without defining it.
  friend constexpr bool operator==(Device a, Device b) noexcept { return a.ordinal_ == b.ordinal_; }
  friend constexpr auto operator<=>(Device, Device) noexcept = default;
  /// to_string()
  template <class Char, class Traits>
  friend std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, Device device) {
    return out << to_string(device).c_str();
  }
  /// "Device(0)"
  friend std::string to_string(Device device) { return "Device(" + std::to_string(device.ordinal_) + ")"; }

 private:
  int ordinal_;
};

/// Version numbers as the runtime gives them (CUDA 13.0 is 13000); 0 where there is none.
struct RuntimeVersion {
  int runtime;  ///< the library that runnel was loaded with
  int driver;   ///< the newest runtime that the installed driver can serve
};
/// Works without a device too.
[[nodiscard]] RuntimeVersion runtime_version();

/// Makes a device current for a scope, and the one it found current again afterwards, on every way out.
class [[nodiscard]] DeviceGuard {
 public:
  /// Makes `device` current.
  explicit DeviceGuard(Device device);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

 private:
  Device found_;
};

}  // namespace runnel::inline RUNNEL_ABI

template <>
struct std::hash<runnel::Device> {
  std::size_t operator()(runnel::Device device) const noexcept { return std::hash<int>{}(device.ordinal()); }
};
