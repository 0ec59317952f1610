// SPDX-License-Identifier: Apache-2.0
#include <runnel/device.hpp>

#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "base/unknown_variables.hpp"
#include "device/current_device.hpp"
#include "device/device_call.hpp"
#include "device/device_table.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

namespace runnel::inline RUNNEL_ABI {

namespace detail {

constinit sync::Atomic<int> known_device_count{0};

namespace {

backend::status count_devices(int& count) noexcept {
  const backend::status s = backend::device_count(count);
  if (!succeeded_or_forget(s)) count = 0;
  count = std::clamp(count, 0, max_devices);
  // A library that finds no device reports nothing: the program may load that of another backend.
  if (known_device_count.exchange(count) == 0 && count > 0) name_unknown_variables();
  return s;
}

using enum backend::Attribute;

struct CachedProperties {
  sync::Atomic<int> least_priority{0}, greatest_priority{0};
  sync::Atomic<bool> has_priorities{false};
  sync::Atomic<int> attributes[static_cast<int>(partitions) + 1]{};  // plus 1; 0: not queried yet
  sync::Atomic<size_t> memory{0};
};
constinit CachedProperties cached[max_devices];

/// Queries the runtime once. Requires: the device exists.
int known_attribute(int device, backend::Attribute which,
                    const char* operation = "ask what a device can do") {
  sync::Atomic<int>& known = cached[device].attributes[static_cast<int>(which)];
  if (known == 0) {
    int value = 0;
    check(backend::device_attribute(value, which, device), operation);
    known = value + 1;
  }
  return known - 1;
}

int attribute_of(int device, backend::Attribute which, const char* operation) {
  const DeviceCall call{device, operation};
  return known_attribute(device, which, operation);
}

constinit sync::Atomic<bool> granted[max_devices][max_devices];

/// Grants or revokes the device's access to the memory pool of `peer`, if it has one. Peer access
/// alone does not cover memory that is allocated in stream order.
void allow_pool_access(int device, int peer, bool allow, const char* operation) {
  if (!has_memory_pools(peer)) return;
  const ScopedDevice on{peer, operation};
  check(backend::allow_pool_access(peer, device, allow), operation);
}

constexpr const char* counting = "count the devices";

/// Advice for a runtime that reports no device.
std::string advice_for(errc code, RuntimeVersion version) {
  const bool has_driver = version.driver > 0;
  // CUDA returns the same code for a driver that is too old and for a missing one.
  if (code == errc::driver_too_old ||
      (has_driver && (code != errc::no_device || version.driver < version.runtime)))
    return "install a newer driver, or build runnel with an older toolkit";
  if (has_driver)
    return std::string{"check that a device is there, that this user may open it, and that "} +
           backend::hiding_variable() + " does not hide it";
  return std::string{"in a container, start it with its devices ("} + backend::container_options() +
         "); else install the device's driver, or build runnel with -Dgpu_backend=host";
}

/// Formats a uuid, as in "5e7b1f9c-0a3d-4a52-8c0e-1f6d2b7a9e44".
std::string uuid_text(const unsigned char (&bytes)[16]) {
  std::string text;
  for (size_t i = 0; i < sizeof bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

std::string lower_case(std::string text) {
  for (char& letter : text)
    if ('A' <= letter && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

/// The first device that `matches`.
/// @throws errc::invalid_device if there is none
template <class Matches>
Device find_device(const char* operation, const std::string& name, Matches&& matches) {
  enter(operation);
  require_device(0, operation);
  for (int ordinal = 0; ordinal < device_count(); ++ordinal)
    if (matches(Device{ordinal})) return Device{ordinal};
  throw_error(errc::invalid_device, operation, ("no device is named " + name).c_str());
}

}  // namespace

int device_count() noexcept {
  int count = known_device_count;
  if (count == 0) count_devices(count);
  return count;
}

void require_device(int device, const char* operation) {
  int count = device_count();
  if (device >= 0 && device < count) [[likely]]
    return;
  if (count == 0) {
    // Queries again to learn the reason: there is no device, or the runtime failed.
    const backend::status s = count_devices(count);
    const bool is_none = s == backend::ok || backend::classify(s) == errc::no_device ||
                         backend::classify(s) == errc::driver_too_old;
    if (!is_none) throw_status(s, operation);
    if (count == 0) throw_error(errc::no_device, operation, Device::why_no_device().c_str());
    if (device >= 0 && device < count) return;
  }
  throw_formatted(errc::invalid_device, operation, backend::ok,
                  "there is no device %d: there %s %d, numbered from 0", device,
                  count == 1 ? "is" : "are", count);
}

PriorityRange priority_range_of(int device, const char* operation) {
  require_device(device, operation);
  CachedProperties& entry = cached[device];
  if (!entry.has_priorities) {
    int least = 0, greatest = 0;
    const ScopedDevice on{device, operation};
    check(backend::priority_range(least, greatest), operation);
    entry.least_priority = least;
    entry.greatest_priority = greatest;
    entry.has_priorities = true;
  }
  return {entry.least_priority.load(), entry.greatest_priority.load()};
}

bool has_memory_pools(int device) { return known_attribute(device, memory_pools) != 0; }
bool has_stream_values(int device) {
  return known_attribute(device, stream_memory_operations) != 0;
}
bool accesses_pageable_memory(int device) {
  return known_attribute(device, pageable_memory_access) != 0;
}
bool reads_host_page_tables(int device) {
  return known_attribute(device, pageable_memory_access_uses_host_page_tables) != 0;
}

size_t total_memory(int device) {
  sync::Atomic<size_t>& total = cached[device].memory;
  if (total == 0) total = Device{device}.memory_info().total;
  return total;
}

void grant_pool_access(int device, int owner, const char* operation) {
  if (owner < 0 || owner == device || granted[device][owner]) return;
  int can = 0;
  check(backend::can_access_peer(can, device, owner), operation);
  if (can != 0) internal_call([&] { allow_pool_access(device, owner, true, operation); });
  granted[device][owner] = true;
}

}  // namespace detail

using namespace detail;

int Device::count() {
  enter(counting);
  return device_count();
}

std::string Device::why_no_device() {
  enter(counting);
  int count = 0;
  const backend::status s = count_devices(count);
  if (count > 0) return "";
  if (s == backend::ok)
    return std::string{"the runtime shows no device: check that one is there, and that "} +
           backend::hiding_variable() + " does not hide it";
  // Without a driver the runtime says that the driver is too old.
  const RuntimeVersion version = runtime_version();
  std::string reason = version.driver > 0 ? backend::error_text(s) : "there is no driver";
  reason += " (";
  reason += backend::error_name(s);
  reason += ", " + std::to_string(s) + "): ";
  return reason + advice_for(backend::classify(s), version);
}

Device Device::current() {
  constexpr const char* operation = "ask for the current device";
  enter(operation);
  return Device{read_current_device(operation)};
}

void Device::use() const {
  const DeviceCall call{ordinal_, "make a device current"};
  change_current_device(ordinal_, call.operation());
}

std::string Device::name() const {
  const DeviceCall call{ordinal_, "ask for a device's name"};
  char text[256] = {};
  call.check(backend::device_name(text, sizeof text, ordinal_));
  return text;
}

ComputeCapability Device::compute_capability() const {
  constexpr const char* operation = "ask for a device's compute capability";
  return {attribute_of(ordinal_, backend::Attribute::compute_capability_major, operation),
          attribute_of(ordinal_, backend::Attribute::compute_capability_minor, operation)};
}

std::string Device::uuid() const {
  const DeviceCall call{ordinal_, "ask for a device's uuid"};
  unsigned char bytes[16] = {};
  call.check(backend::device_uuid(bytes, ordinal_));
  return uuid_text(bytes);
}

std::string Device::pci_bus_id() const {
  const DeviceCall call{ordinal_, "ask for a device's place on the bus"};
  char text[32] = {};
  call.check(backend::device_pci_bus_id(text, sizeof text, ordinal_));
  return lower_case(text);
}

Device Device::from_pci_bus_id(const std::string& id) {
  const bool has_domain = std::ranges::count(id, ':') == 2;
  const std::string wanted = lower_case(has_domain ? id : "0000:" + id);
  return find_device("find a device by its PCI bus id", id,
                     [&](Device device) { return device.pci_bus_id() == wanted; });
}

Device Device::from_uuid(const std::string& uuid) {
  const std::string wanted = lower_case(uuid.starts_with("GPU-") ? uuid.substr(4) : uuid);
  return find_device("find a device by its uuid", uuid,
                     [&](Device device) { return device.uuid() == wanted; });
}

HostWait Device::host_wait() const {
  const CurrentDeviceCall call{ordinal_, "ask how the host waits for a device"};
  HostWait wait{};
  call.check(backend::host_wait(wait));
  return wait;
}

void Device::set_host_wait(HostWait wait) const {
  const CurrentDeviceCall call{ordinal_, "set how the host waits for a device"};
  call.check(backend::set_host_wait(wait));
}

MemoryInfo Device::memory_info() const {
  // The question about a pool would break captures.
  const InternalDeviceCall call{ordinal_, "ask for a device's memory"};
  MemoryInfo info{};
  call.check(backend::memory_info(info.free, info.total, call.device()));
  return info;
}

PriorityRange Device::priority_range() const {
  constexpr const char* operation = "ask for a device's priority range";
  enter(operation);
  return priority_range_of(ordinal_, operation);
}

int Device::async_engine_count() const {
  return attribute_of(ordinal_, backend::Attribute::async_engine_count,
                      "ask for a device's copy engines");
}
int Device::multiprocessor_count() const {
  return attribute_of(ordinal_, backend::Attribute::multiprocessor_count,
                      "ask for a device's multiprocessors");
}
int Device::hardware_queues() const {
  return attribute_of(ordinal_, backend::Attribute::hardware_queues, "ask for a device's queues");
}
bool Device::can_map_host_memory() const {
  return attribute_of(ordinal_, backend::Attribute::can_map_host_memory,
                      "ask whether a device maps host memory") != 0;
}
bool Device::can_pin_read_only_memory() const {
  return attribute_of(ordinal_, backend::Attribute::can_pin_read_only_memory,
                      "ask whether a device pins read-only memory") != 0;
}
bool Device::has_pageable_memory_access() const {
  return attribute_of(ordinal_, backend::Attribute::pageable_memory_access,
                      "ask whether a device reads pageable memory") != 0;
}
bool Device::can_use_host_page_tables() const {
  return attribute_of(ordinal_, backend::Attribute::pageable_memory_access_uses_host_page_tables,
                      "ask whether a device uses the host's page tables") != 0;
}
bool Device::has_stream_memory_operations() const {
  return attribute_of(ordinal_, backend::Attribute::stream_memory_operations,
                      "ask whether streams can wait for values") != 0;
}
bool Device::has_partitions() const {
  return attribute_of(ordinal_, backend::Attribute::partitions,
                      "ask whether a device can be divided") != 0;
}
bool Device::has_memory_pools() const {
  return attribute_of(ordinal_, backend::Attribute::memory_pools,
                      "ask whether a device has memory pools") != 0;
}

bool Device::can_access_peer(Device peer) const {
  const DeviceCall call{ordinal_, "ask for peer access"};
  require_device(peer.ordinal_, call.operation());
  if (ordinal_ == peer.ordinal_) return true;
  int can = 0;
  call.check(backend::can_access_peer(can, ordinal_, peer.ordinal_));
  return can != 0;
}

void Device::enable_peer_access(Device peer) const {
  constexpr const char* operation = "enable peer access";
  if (!can_access_peer(peer))
    throw_error(errc::peer_access, operation, "the device cannot reach this peer's memory");
  if (ordinal_ == peer.ordinal_) return;
  const InternalDeviceCall call{ordinal_, operation};
  call.check(backend::enable_peer_access(peer.ordinal_));
  allow_pool_access(ordinal_, peer.ordinal_, true, operation);
}

void Device::disable_peer_access(Device peer) const {
  if (!can_access_peer(peer) || ordinal_ == peer.ordinal_) return;
  const InternalDeviceCall call{ordinal_, "disable peer access"};
  call.check(backend::disable_peer_access(peer.ordinal_));
  allow_pool_access(ordinal_, peer.ordinal_, false, call.operation());
  granted[ordinal_][peer.ordinal_] = false;
}

RuntimeVersion runtime_version() {
  enter("ask for the runtime's version");
  RuntimeVersion version{};
  succeeded_or_forget(backend::runtime_version(version.runtime));
  succeeded_or_forget(backend::driver_version(version.driver));
  return version;
}

DeviceGuard::DeviceGuard(Device device) : found_{Device::current()} {
  if (device != found_) device.use();
}
DeviceGuard::~DeviceGuard() { restore_current_device(found_.ordinal()); }

}  // namespace runnel::inline RUNNEL_ABI
