// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {
namespace {

// No runtime reports the number of queues that streams share. Each reads the number from its own
// environment variable.
int hardware_queues() noexcept {
  const char* const text = std::getenv(rt::hardware_queues_variable);
  int value = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
  return value > 0 ? value : rt::hardware_queues_default;
}

rt::attribute native_attribute(Attribute attribute) noexcept {
  switch (attribute) {
    case Attribute::compute_capability_major:
      return rt::attribute_compute_capability_major;
    case Attribute::compute_capability_minor:
      return rt::attribute_compute_capability_minor;
    case Attribute::async_engine_count:
      return rt::attribute_async_engine_count;
    // The runtime is queried for another attribute, so that it reports an invalid device.
    case Attribute::hardware_queues:
    case Attribute::partitions:  // the same
    case Attribute::multiprocessor_count:
      return rt::attribute_multiprocessor_count;
    case Attribute::can_map_host_memory:
      return rt::attribute_can_map_host_memory;
    case Attribute::can_pin_read_only_memory:
      return rt::attribute_can_pin_read_only_memory;
    case Attribute::pageable_memory_access:
      return rt::attribute_pageable_memory_access;
    case Attribute::pageable_memory_access_uses_host_page_tables:
      return rt::attribute_pageable_memory_access_uses_host_page_tables;
    case Attribute::stream_memory_operations:
      return rt::attribute_stream_memory_operations;
    case Attribute::memory_pools:
      return rt::attribute_memory_pools;
  }
  return rt::attribute_multiprocessor_count;
}

unsigned int native_flag(HostWait wait) noexcept {
  switch (wait) {
    case HostWait::spin:
      return rt::host_wait_spin;
    case HostWait::yield:
      return rt::host_wait_yield;
    case HostWait::block:
      return rt::host_wait_block;
    case HostWait::automatic:
      break;
  }
  return rt::host_wait_automatic;
}

// Converts the error "already in this state" into success, and clears it.
status accept(status s, status harmless) noexcept {
  if (s != harmless) return s;
  forget_error(s);
  return ok;
}

}  // namespace

const char* container_options() noexcept { return rt::container_options; }
const char* hiding_variable() noexcept { return rt::hiding_variable; }

status device_count(int& count) noexcept {
  const status s = rt::get_device_count(&count);
  if (s != ok) count = 0;  // without a driver, the CUDA runtime leaves the output unchanged
  return s;
}

status get_device(int& device) noexcept { return rt::get_device(&device); }

status set_device(int device) noexcept { return rt::set_device(device); }

status device_name(char* text, std::size_t size, int device) noexcept {
  return rt::device_name(text, size, device);
}

status device_attribute(int& value, Attribute attribute, int device) noexcept {
  value = 0;
  const status s = rt::device_get_attribute(&value, native_attribute(attribute), device);
  if (s == ok && attribute == Attribute::hardware_queues) value = hardware_queues();
  if (s == ok && attribute == Attribute::partitions) return rt::can_divide_devices(&value);
  if (attribute == Attribute::can_pin_read_only_memory && !rt::registers_read_only_memory)
    value = 0;
  if (attribute == Attribute::stream_memory_operations && !rt::values_in_pinned_memory) value = 0;
  return s;
}

status device_uuid(unsigned char (&bytes)[16], int device) noexcept {
  return rt::device_uuid(bytes, device);
}

status device_pci_bus_id(char* text, std::size_t size, int device) noexcept {
  return rt::device_pci_bus_id(text, static_cast<int>(size), device);
}

status host_wait(HostWait& wait) noexcept {
  unsigned int flags = 0;
  const status s = rt::get_device_flags(&flags);
  wait = HostWait::automatic;
  for (const HostWait other : {HostWait::spin, HostWait::yield, HostWait::block})
    if ((flags & rt::host_wait_flags) == native_flag(other)) wait = other;
  return s;
}

status set_host_wait(HostWait wait) noexcept {
  unsigned int flags = 0;
  if (const status s = rt::get_device_flags(&flags); s != ok) return s;
  return rt::set_device_flags((flags & ~rt::host_wait_flags) | native_flag(wait));
}

status priority_range(int& least, int& greatest) noexcept {
  // HIP's documentation: without support for priorities, the call succeeds and need not set them.
  least = 0;
  greatest = 0;
  return rt::get_stream_priority_range(&least, &greatest);
}

status device_synchronize() noexcept { return rt::device_synchronize(); }

status can_access_peer(int& can, int device, int peer) noexcept {
  return rt::can_access_peer(&can, device, peer);
}

status enable_peer_access(int peer) noexcept {
  return accept(rt::enable_peer_access(peer, 0), rt::peer_access_already_enabled);
}

status disable_peer_access(int peer) noexcept {
  return accept(rt::disable_peer_access(peer), rt::peer_access_not_enabled);
}

status runtime_version(int& version) noexcept {
  version = 0;
  return rt::runtime_get_version(&version);
}

status driver_version(int& version) noexcept {
  version = 0;
  return rt::driver_get_version(&version);
}

}  // namespace runnel::inline RUNNEL_ABI::backend
