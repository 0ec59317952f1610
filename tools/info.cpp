// SPDX-License-Identifier: Apache-2.0
#include "info.hpp"

#include "backend.hpp"
#include "size.hpp"
#include "why.hpp"

#include <runnel/config.hpp>
#include <runnel/device.hpp>

#include <cstdio>
#include <string>

namespace tool {

namespace {

#if defined RUNNEL_BACKEND_HIP && !defined RUNNEL_HIP_PLATFORM_NVIDIA
constexpr Vendor vendor = Vendor::amd;
#else
constexpr Vendor vendor = Vendor::nvidia;
#endif

std::string abilities(runnel::Device device) {
  std::string text;
  const auto add = [&](bool can, const char* what) {
    if (can) text += (text.empty() ? "" : ", ") + std::string{what};
  };
  add(device.can_map_host_memory(), "map host memory");
  add(device.can_pin_read_only_memory(), "pin read-only memory");
  add(device.has_memory_pools(), "allocate in stream order");
  add(device.has_stream_memory_operations(), "wait for and write values in memory");
  add(device.has_partitions(), "give streams a part of its multiprocessors");
  add(device.has_pageable_memory_access(), "read pageable memory");
  add(device.can_use_host_page_tables(), "share the host's page tables");
  const int count = runnel::Device::count();
  for (int peer = 0; peer < count; ++peer)
    if (peer != device.ordinal())
      add(device.can_access_peer(runnel::Device{peer}),
          ("reach device " + std::to_string(peer)).c_str());
  return text.empty() ? "nothing besides copies and kernels" : text;
}

void print_identity(runnel::Device device) {
  const auto [major, minor] = device.compute_capability();
  std::printf("  capability       %d.%d\n", major, minor);
  std::printf("  uuid             %s\n", device.uuid().c_str());
  std::printf("  PCI bus id       %s\n", device.pci_bus_id().c_str());
  constexpr const char* waits[] = {"as the runtime chooses", "spins", "yields", "sleeps"};
  std::printf("  a waiting host   %s\n", waits[static_cast<int>(device.host_wait())]);
}

void print(runnel::Device device) {
  const auto [free, total] = device.memory_info();
  const auto priorities = device.priority_range();
  const int engines = device.async_engine_count();
  const int queues = device.hardware_queues();

  std::printf("\ndevice %d           %s\n", device.ordinal(), device.name().c_str());
  std::printf("  memory           %s, %s free\n", to_text(total).c_str(), to_text(free).c_str());
  if (priorities.has_levels())
    std::printf("  priorities       %d (most urgent) to %d (least urgent)\n",
                priorities.greatest.value, priorities.least.value);
  else
    std::printf("  priorities       one level only\n");
  std::printf("  copy engines     %d (%s)\n", engines,
              engines == 0   ? "copies do not overlap kernels"
              : engines == 1 ? "copies overlap kernels, one direction at a time"
                             : "copies overlap kernels, both directions at once");
  if (queues > 0)
    std::printf("  hardware queues  %d\n", queues);
  else
    std::printf("  hardware queues  %s\n",
                host_backend ? "none: a thread for each stream with work" : "unknown");
  std::printf("  processors       %d\n", device.multiprocessor_count());
  if (!host_backend) print_identity(device);
  std::printf("  can              %s\n", abilities(device).c_str());
}

std::string chosen_because() {
  return "The backend is " RUNNEL_BACKEND ": " RUNNEL_BACKEND_REASON ".";
}

std::string version_text(int version) { return version == 0 ? "none" : std::to_string(version); }

}  // namespace

std::string why_no_device() {
  if constexpr (host_backend) return runnel::Device::why_no_device();
  const auto [runtime, driver] = runnel::runtime_version();
  const std::string seen = explain(vendor, look_at_machine(vendor, "/"), runtime, driver);
  return runnel::Device::why_no_device() +
         (seen.empty() ? "" : ". The files of this machine say: " + seen);
}

int info(bool why_only) {
  const int count = runnel::Device::count();
  if (why_only) {
    std::puts(count == 0 ? why_no_device().c_str()
                         : ("There is a device; nothing is wrong. " + chosen_because()).c_str());
    return 0;
  }
  const auto [runtime, driver] = runnel::runtime_version();
  std::printf("runnel %s\n", RUNNEL_VERSION);
  std::printf("backend            %s (chosen when it was built: %s)\n", RUNNEL_BACKEND,
              RUNNEL_BACKEND_REASON);
  if (host_backend) {
    std::printf("runtime            threads of this process; no driver needed\n");
  } else {
    std::printf("runtime version    %s\n", version_text(runtime).c_str());
    std::printf("driver version     %s\n", version_text(driver).c_str());
  }
  if (count == 0)
    std::printf("devices            none: %s\n", why_no_device().c_str());
  else
    std::printf("devices            %d\n", count);
  for (int ordinal = 0; ordinal < count; ++ordinal) print(runnel::Device{ordinal});
  return 0;
}

}  // namespace tool
