// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// Devices: how many there are, what each can do, and which one is current on a thread.
///
/// A program begins here: `Device::count()` is 0 without a device or without a driver. Then it
/// creates streams on a device (stream.hpp). `Device{0}.name()` and `runnel info` describe the
/// device. docs/testing-gpu-code.md shows how to simulate several devices on a machine without a
/// GPU.
#pragma once

#include <runnel/detail/deadline.hpp>
#include <runnel/priority.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

class StreamRef;

/// The vendor's version number for the features of a device's kernels: 9.0 for an H100, 9.4 for
/// gfx942; 0.0 on the host backend.
struct ComputeCapability {
  int major;  ///< the part before the point
  int minor;  ///< the part after the point
  friend constexpr auto operator<=>(const ComputeCapability&,
                                    const ComputeCapability&) noexcept = default;
};

/// How a thread waits for a device.
enum class HostWait {
  automatic,  ///< the runtime chooses (default)
  spin,       ///< polls: reacts fastest, and uses a core
  yield,      ///< polls, and yields to other threads between the polls
  block,      ///< sleeps until the work is complete
};

/// How much memory a device has.
struct MemoryInfo {
  std::size_t free;   ///< bytes that no process has allocated, and those that the library's pool of
                      ///< the device keeps unused (DeviceResource::set_release_threshold())
  std::size_t total;  ///< bytes in all
};

/// A device, identified by its ordinal: a small value. The constructor makes no runtime call. Every
/// member that calls the runtime throws `errc::invalid_device` if no device has that ordinal and
/// `errc::no_device` if there is no device at all, and, except use(), does not change the current
/// device.
class Device {
 public:
  /// The device with this ordinal, counted from 0.
  explicit constexpr Device(int ordinal) noexcept : ordinal_{ordinal} {}

  /// The number of devices; 0 if there is none or no driver.
  [[nodiscard]] static int count();
  /// Explains in one line why `count()` is 0 and how to fix it; "" if there is a device.
  [[nodiscard]] static std::string why_no_device();
  /// The calling thread's current device.
  [[nodiscard]] static Device current();
  /// The device with this PCI bus id, in the format of pci_bus_id(). The domain may be omitted:
  /// "01:00.0" is in domain 0. @throws errc::invalid_device if there is none
  [[nodiscard]] static Device from_pci_bus_id(const std::string& id);
  /// The device with this UUID, in the format of uuid(), also with the prefix "GPU-". @throws
  /// errc::invalid_device if there is none
  [[nodiscard]] static Device from_uuid(const std::string& uuid);
  /// Makes this the calling thread's current device.
  void use() const;

  /// The device's number, counted from 0.
  [[nodiscard]] constexpr int ordinal() const noexcept { return ordinal_; }
  /// The vendor's name for the device.
  [[nodiscard]] std::string name() const;
  /// The version number for the features of the device's kernels.
  [[nodiscard]] ComputeCapability compute_capability() const;
  /// The device's UUID, such as "5e7b1f9c-0a3d-4a52-8c0e-1f6d2b7a9e44". On the host backend it is
  /// derived from the ordinal.
  [[nodiscard]] std::string uuid() const;
  /// The device's PCI bus id, such as "0000:01:00.0"; "" on the host backend.
  [[nodiscard]] std::string pci_bus_id() const;
  /// How threads wait for the device.
  [[nodiscard]] HostWait host_wait() const;
  /// Sets how threads wait for the device, for all threads of the process. @throws
  /// errc::not_supported on the host backend, except for HostWait::automatic
  void set_host_wait(HostWait wait) const;
  /// The device's free and total memory, in bytes, at this moment.
  [[nodiscard]] MemoryInfo memory_info() const;
  /// The priorities that the device's streams can have.
  [[nodiscard]] PriorityRange priority_range() const;

  /// The number of copy engines. 0: copies do not overlap kernels; 1: one direction at a time
  /// overlaps; 2: both directions at once.
  [[nodiscard]] int async_engine_count() const;
  /// The number of multiprocessors, which run the blocks of kernels; on the host backend the number
  /// of the machine's processors.
  [[nodiscard]] int multiprocessor_count() const;
  /// The number of hardware queues that streams share; if more streams than this are busy, their
  /// work may be serialized. 0 if the runtime does not report it.
  [[nodiscard]] int hardware_queues() const;
  /// Whether kernels can reach pinned host memory without a copy.
  [[nodiscard]] bool can_map_host_memory() const;
  /// Whether memory that the process may only read can be pinned, see HostRegistration.
  [[nodiscard]] bool can_pin_read_only_memory() const;
  /// Whether the device can read pageable host memory directly.
  [[nodiscard]] bool has_pageable_memory_access() const;
  /// Whether the device reads pageable host memory through the host's page tables, so that pinning
  /// gains nothing.
  [[nodiscard]] bool can_use_host_page_tables() const;
  /// Whether streams can wait for values in memory and write them, see StreamRef::wait_value() and
  /// write_value().
  [[nodiscard]] bool has_stream_memory_operations() const;
  /// Whether streams can be restricted to a part of the multiprocessors, see partition(). This
  /// needs CUDA 12.5 or later with a matching driver, or AMD.
  [[nodiscard]] bool has_partitions() const;
  /// Whether device memory can be allocated and freed in stream order.
  [[nodiscard]] bool has_memory_pools() const;

  /// Whether this device can read and write `peer`'s memory directly.
  [[nodiscard]] bool can_access_peer(Device peer) const;
  /// Enables this device to access `peer`'s memory; a second call does nothing. @throws
  /// errc::peer_access if the hardware does not support it
  void enable_peer_access(Device peer) const;
  /// Ends this device's access to `peer`'s memory; does nothing if it was not enabled.
  void disable_peer_access(Device peer) const;

  /// Waits until everything submitted to this device has completed, on every stream. @throws
  /// errc::capture during a `capture()`
  void synchronize() const;
  /// The same, but throws nothing: it clears or sets a `std::error_code` (include
  /// <runnel/error.hpp>).
  template <class ErrorCode>
  auto synchronize(ErrorCode& code) const noexcept -> decltype(set_by_synchronize(code, *this)) {
    return set_by_synchronize(code, *this);
  }
  /// As synchronize(), but waits at most `timeout`; returns false if the time ran out first. A
  /// thread of the library makes the runtime's call, and may go on waiting until the device's work
  /// is complete.
  template <class Rep, class Period>
  [[nodiscard]] bool synchronize_for(std::chrono::duration<Rep, Period> timeout) const {
    return synchronize_to(detail::deadline_after(timeout));
  }
  /// The same until a point in time of any clock.
  template <class Clock, class Duration>
  [[nodiscard]] bool synchronize_until(std::chrono::time_point<Clock, Duration> time) const {
    return synchronize_to(detail::deadline_at(time));
  }
  /// The device's default stream: the platform's null stream, which orders with streams made
  /// `blocking`.
  [[nodiscard]] StreamRef default_stream() const;

  // Not defaulted: nvcc calls a defaulted one without defining it.
  friend constexpr bool operator==(Device a, Device b) noexcept { return a.ordinal_ == b.ordinal_; }
  friend constexpr auto operator<=>(Device, Device) noexcept = default;
  /// Writes to_string(device).
  template <class Char, class Traits>
  friend auto& operator<<(std::basic_ostream<Char, Traits>& out, Device device) {
    return out << to_string(device).c_str();
  }
  /// Text such as "Device(0)".
  friend std::string to_string(Device device) {
    return "Device(" + std::to_string(device.ordinal_) + ")";
  }

 private:
  [[nodiscard]] bool synchronize_to(std::chrono::steady_clock::time_point deadline) const;
  int ordinal_;
};

/// Version numbers in the runtime's format (CUDA 13.0 is 13000); 0 if the part is missing.
struct RuntimeVersion {
  int runtime;  ///< of the runtime library that the process has loaded
  int driver;   ///< the newest runtime that the installed driver supports
};
/// Returns the versions of the runtime and the driver. Needs no device.
[[nodiscard]] RuntimeVersion runtime_version();

/// Makes a device current for a scope. At the end of the scope, also after an exception, the
/// previous device is current again.
class [[nodiscard]] DeviceGuard {
 public:
  /// Makes `device` current.
  [[nodiscard]] explicit DeviceGuard(Device device);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

 private:
  Device found_;
};

}  // namespace runnel::inline RUNNEL_ABI

template <>
struct std::hash<runnel::Device> {
  std::size_t operator()(runnel::Device device) const noexcept {
    return std::hash<int>{}(device.ordinal());
  }
};
