// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// Devices: how many there are, what each can do, and which one is current on a thread.
///
/// A program begins here: `Device::count()` is 0 without a device or without a driver. Then streams
/// are made on a device (stream.hpp). `Device{0}.name()` and `runnel info` say what it is.
/// docs/testing-gpu-code.md shows how to have several devices on a machine without a GPU.
#pragma once

#include <runnel/config.hpp>
#include <runnel/detail/deadline.hpp>
#include <runnel/priority.hpp>

#include <chrono>
#include <compare>
#include <cstddef>
#include <iosfwd>
#include <string>

namespace runnel::inline RUNNEL_ABI {

class StreamRef;

/// The vendor's number for what a device's kernels may use: 9.0 for an H100, for gfx942 9.4; 0.0 on
/// the host backend.
struct ComputeCapability {
  int major;  ///< before the point
  int minor;  ///< after it
  friend constexpr auto operator<=>(const ComputeCapability&,
                                    const ComputeCapability&) noexcept = default;
};

/// What a thread does while it waits for a device.
enum class HostWait {
  automatic,  ///< what the runtime chooses (default)
  spin,       ///< asks again and again: reacts fastest, and uses a core
  yield,      ///< asks again and again, and lets other threads run between
  block,      ///< sleeps
};

/// How much memory a device has.
struct MemoryInfo {
  std::size_t free;   ///< bytes that no process has allocated
  std::size_t total;  ///< bytes in all
};

/// A device, named by its ordinal: a small value. The constructor makes no runtime call. Every
/// member that asks the runtime throws `errc::invalid_device` if no device has that ordinal and
/// `errc::no_device` if there is no device at all, and leaves the current device as it found it.
class Device {
 public:
  /// The device with this ordinal, counted from 0.
  explicit constexpr Device(int ordinal) noexcept : ordinal_{ordinal} {}

  /// The number of devices; 0 if there is none or no driver.
  [[nodiscard]] static int count();
  /// Why `count()` is 0 and what to do about it, in one line; "" if there is a device.
  [[nodiscard]] static std::string why_no_device();
  /// The calling thread's current device.
  [[nodiscard]] static Device current();
  /// The device with this PCI bus id, as pci_bus_id() writes it; "01:00.0" is in domain 0. @throws
  /// errc::invalid_device if there is none
  [[nodiscard]] static Device from_pci_bus_id(const std::string& id);
  /// The device with this uuid, as uuid() writes it; "GPU-" may come before. @throws
  /// errc::invalid_device if there is none
  [[nodiscard]] static Device from_uuid(const std::string& uuid);
  /// Makes this the calling thread's current device.
  void use() const;

  /// The device's number, counted from 0.
  [[nodiscard]] constexpr int ordinal() const noexcept { return ordinal_; }
  /// The vendor's name for the device.
  [[nodiscard]] std::string name() const;
  /// What the device's kernels may use.
  [[nodiscard]] ComputeCapability compute_capability() const;
  /// A name that no other device has, as "5e7b1f9c-0a3d-4a52-8c0e-1f6d2b7a9e44". On the host
  /// backend it is made of the ordinal.
  [[nodiscard]] std::string uuid() const;
  /// The device's place on the bus, as "0000:01:00.0"; "" on the host backend.
  [[nodiscard]] std::string pci_bus_id() const;
  /// What threads do while they wait for the device.
  [[nodiscard]] HostWait host_wait() const;
  /// Sets it, for all threads of the process. @throws errc::not_supported on the host backend for
  /// all but HostWait::automatic
  void set_host_wait(HostWait wait) const;
  /// The device's memory, in bytes, at this moment.
  [[nodiscard]] MemoryInfo memory_info() const;
  /// The priorities that the device's streams can have.
  [[nodiscard]] PriorityRange priority_range() const;

  /// The number of copy engines. 0: copies do not overlap kernels; 1: one direction at a time
  /// overlaps; 2: both directions at once.
  [[nodiscard]] int async_engine_count() const;
  /// The number of multiprocessors, which run blocks of kernels; on the host backend the machine's
  /// processors.
  [[nodiscard]] int multiprocessor_count() const;
  /// The number of hardware queues that streams share; more busy streams than this may wait for
  /// each other. 0 if the runtime does not say.
  [[nodiscard]] int hardware_queues() const;
  /// Whether kernels can reach pinned host memory without a copy.
  [[nodiscard]] bool can_map_host_memory() const;
  /// Whether memory that the process may only read can be pinned: HostRegistration.
  [[nodiscard]] bool can_pin_read_only_memory() const;
  /// Whether the device can read pageable host memory directly.
  [[nodiscard]] bool has_pageable_memory_access() const;
  /// Whether the device reads pageable host memory through the host's page tables, so that pinning
  /// gains nothing.
  [[nodiscard]] bool can_use_host_page_tables() const;
  /// Whether streams can wait for values in memory and write them: StreamRef::wait_value() and
  /// write_value().
  [[nodiscard]] bool has_stream_memory_operations() const;
  /// Whether streams can have a part of the multiprocessors: partition(). CUDA 12.5 and later with
  /// its driver, and AMD.
  [[nodiscard]] bool has_partitions() const;
  /// Whether device memory can be allocated and freed in stream order.
  [[nodiscard]] bool has_memory_pools() const;

  /// Whether this device can read and write `peer`'s memory directly.
  [[nodiscard]] bool can_access_peer(Device peer) const;
  /// Lets this device reach `peer`'s memory; a second call does nothing. @throws errc::peer_access
  /// if the devices cannot do it
  void enable_peer_access(Device peer) const;
  /// Ends this device's access to `peer`'s memory; does nothing if it was not enabled.
  void disable_peer_access(Device peer) const;

  /// Waits until everything submitted to this device has completed, on every stream. @throws
  /// errc::capture during a `capture()`
  void synchronize() const;
  /// The same, but throws nothing: clears a `std::error_code` (of <runnel/error.hpp>), or sets it.
  template <class ErrorCode>
  auto synchronize(ErrorCode& code) const noexcept -> decltype(set_by_synchronize(code, *this)) {
    return set_by_synchronize(code, *this);
  }
  /// As synchronize(), but waits at most `timeout`: false if the time ran out first. A thread of
  /// the library waits in its place, and goes on until the device is done.
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
  friend std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                                      Device device) {
    return out << to_string(device).c_str();
  }
  /// "Device(0)"
  friend std::string to_string(Device device) {
    return "Device(" + std::to_string(device.ordinal_) + ")";
  }

 private:
  [[nodiscard]] bool synchronize_to(std::chrono::steady_clock::time_point deadline) const;
  int ordinal_;
};

/// Version numbers as the runtime gives them (CUDA 13.0 is 13000); 0 if there is none.
struct RuntimeVersion {
  int runtime;  ///< of the runtime library that runnel was loaded with
  int driver;   ///< the newest runtime that the installed driver supports
};
/// The versions of the runtime and the driver; does not need a device.
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
