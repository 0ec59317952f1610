// SPDX-License-Identifier: Apache-2.0
// Devices, the current device and its guard. The first use from many threads needs a process of its
// own: exit_fork.cpp.
#include <cctype>
#include <fstream>

#include "support.hpp"

namespace conformance::device_cases {
using Devices = Conformance;
using DevicesTwo = TwoDevices;

TEST(NoDevice, CountNeverThrowsAndZeroIsExplained) {
  EXPECT_GE(Device::count(), 0);
  EXPECT_EQ(Device::count() == 0, !Device::why_no_device().empty()) << Device::why_no_device();
}

TEST(NoDevice, CountStaysZeroAfterAFailure) {
  SKIP_IF(Device::count() != 0, "there is a device");
  EXPECT_THROW(Stream{}, std::system_error);
  EXPECT_EQ(Device::count(), 0);
}

TEST(NoDevice, EveryOtherCallThrowsNoDevice) {
  SKIP_IF(Device::count() != 0, "there is a device");
  EXPECT_ERROR(no_device, Device::current());
  EXPECT_ERROR(no_device, Device{0}.use());
  EXPECT_ERROR(no_device, Device{0}.name());
  EXPECT_ERROR(no_device, Device{0}.memory_info());
  EXPECT_ERROR(no_device, Device{0}.priority_range());
  EXPECT_ERROR(no_device, Device{0}.default_stream());
  EXPECT_ERROR(no_device, StreamRef::per_thread_default(Device{0}));
  EXPECT_ERROR(no_device, current_stream());
  EXPECT_ERROR(no_device, DeviceGuard{Device{0}});
  EXPECT_ERROR(no_device, Stream{});
  EXPECT_ERROR(no_device, Stream{Device{0}});
  EXPECT_ERROR(no_device, StreamPool{Device{0}});
  EXPECT_ERROR(no_device, PinnedInts{1});
  EXPECT_ERROR(no_device, DeviceInts{1});
}

TEST_F(Devices, UseMakesADeviceCurrent) {
  const DeviceGuard with{device()};
  for (int i = Device::count() - 1; i >= 0; --i) {
    Device{i}.use();
    EXPECT_CURRENT_DEVICE(Device{i});
  }
}

TEST_F(DevicesTwo, TheCurrentDeviceIsPerThread) {
  const DeviceGuard with{second};
  on_thread([] {
    EXPECT_CURRENT_DEVICE(first);
    first.use();
  });
  EXPECT_CURRENT_DEVICE(second);
}

TEST_F(DevicesTwo, GuardsNestAndRestoreAfterUseAndExceptions) {
  const DeviceGuard outermost{second};
  try {
    const DeviceGuard outer{second};
    {
      const DeviceGuard inner{first};
      EXPECT_CURRENT_DEVICE(first);
    }
    EXPECT_CURRENT_DEVICE(second);
    first.use();
    throw 1;
  } catch (int) {
  }
  EXPECT_CURRENT_DEVICE(second);
}

TEST_F(Devices, EqualDevicesHaveEqualHashes) {
  EXPECT_EQ(Device{1}, Device{1});
  EXPECT_NE(Device{0}, Device{1});
  EXPECT_LT(Device{0}, Device{1});
  EXPECT_EQ(std::hash<Device>{}(Device{1}), std::hash<Device>{}(Device{1}));
  EXPECT_EQ((std::set<Device>{Device{1}, Device{0}, Device{1}}.size()), 2U);
}

TEST_F(Devices, PropertiesArePlausible) {
  const auto [free, total] = device().memory_info();
  EXPECT_LE(free, total);
  EXPECT_GT(total, 0U);
  EXPECT_FALSE(device().name().empty());
  EXPECT_GE(device().async_engine_count(), 0);
  EXPECT_GT(device().multiprocessor_count(), 0);
  EXPECT_GE(device().hardware_queues(), 0);
  EXPECT_TRUE(!device().can_use_host_page_tables() || device().has_pageable_memory_access());
  EXPECT_GT(runtime_version().runtime, 0);
}

TEST_F(Devices, AProcessorHasTheProcessorsName) {
  SKIP_IF(!streams_are_threads(), "the device is no processor");
  std::ifstream info{"/proc/cpuinfo"};
  std::string line;
  while (std::getline(info, line) && line.rfind("model name", 0) != 0) {
  }
  SKIP_IF(!info, "the system names no model of its processor");
  EXPECT_EQ(line.substr(line.size() - device().name().size()), device().name());
  EXPECT_EQ(line.find(':') + 2 + device().name().size(), line.size());
}

TEST_F(Devices, ADevicePrintsItsOrdinal) {
  std::ostringstream out;
  out << Device{-3};
  EXPECT_EQ(out.str(), "Device(-3)");
  EXPECT_EQ(to_string(Device{7}), "Device(7)");
}

TEST_F(Devices, SynchronizeWaitsForEveryStreamOfTheDevice) {
  Log log;
  Stream a, b, c;
  Gate gate{a};
  b.wait_stream(a);
  for (const Stream* stream : {&a, &b, &c}) log.write(*stream, "done");
  size_t seen = 0;
  EXPECT_TRUE(held_by(gate, [&, here = device()] {
    here.synchronize();
    seen = log.size();
  }));
  EXPECT_EQ(seen, 3U);
}

TEST_F(DevicesTwo, SynchronizeDoesNotWaitForOtherDevices) {
  Stream there{second};
  Gate gate{there};
  first.synchronize();
  EXPECT_PENDING(there);
}

TEST_F(Devices, AComputeCapabilityIsGiven) {
  const ComputeCapability found = device().compute_capability();
  EXPECT_EQ(found == (ComputeCapability{0, 0}), streams_are_threads());
  EXPECT_GE(found, (ComputeCapability{0, 0}));
  EXPECT_LT((ComputeCapability{8, 9}), (ComputeCapability{9, 0}));
}

TEST_F(Devices, ADeviceIsFoundByItsUuid) {
  std::set<std::string> seen;
  for (const Device each : all_devices()) {
    const std::string uuid = each.uuid();
    EXPECT_EQ(uuid.size(), 36U);
    EXPECT_EQ(std::ranges::count(uuid, '-'), 4);
    EXPECT_TRUE(seen.insert(uuid).second) << "two devices have one uuid";
    EXPECT_EQ(Device::from_uuid(uuid), each);
    EXPECT_EQ(Device::from_uuid("GPU-" + uuid), each);
  }
  for (const char* const unknown : {"", "GPU-", "ffffffff-ffff-ffff-ffff-ffffffffffff"})
    EXPECT_ERROR(invalid_device, Device::from_uuid(unknown));
}

TEST_F(Devices, ADeviceIsFoundByItsPlaceOnTheBus) {
  for (const Device each : all_devices()) {
    const std::string id = each.pci_bus_id();
    EXPECT_EQ(id.empty(), streams_are_threads());
    if (id.empty()) continue;
    EXPECT_EQ(Device::from_pci_bus_id(id), each);
    std::string capitals = id;
    std::ranges::transform(id, capitals.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    EXPECT_EQ(Device::from_pci_bus_id(capitals), each);
    if (id.rfind("0000:", 0) == 0) {
      EXPECT_EQ(Device::from_pci_bus_id(id.substr(5)), each);
    }
  }
  for (const char* const unknown : {"", "0000:", "ffff:ff:1f.7"})
    EXPECT_ERROR(invalid_device, Device::from_pci_bus_id(unknown));
}

TEST_F(Devices, ADeviceSaysHowTheHostWaits) {
  const HostWait before = device().host_wait();
  for (const HostWait wait : {HostWait::spin, HostWait::yield, HostWait::block}) {
    if (streams_are_threads()) {
      EXPECT_ERROR(not_supported, device().set_host_wait(wait));
      continue;
    }
    device().set_host_wait(wait);
    EXPECT_EQ(device().host_wait(), wait);
    Stream stream;
    EXPECT_RUNS(stream);
    stream.synchronize();
  }
  device().set_host_wait(before);
  EXPECT_EQ(device().host_wait(), before);
}

TEST_F(DevicesTwo, EachHasItsOwnWayToWait) {
  SKIP_IF(streams_are_threads(), "the host backend has one way");
  const HostWait before = first.host_wait();
  const HostWait before_second = second.host_wait();
  second.set_host_wait(HostWait::block);
  EXPECT_EQ(second.host_wait(), HostWait::block);
  EXPECT_EQ(first.host_wait(), before);
  EXPECT_CURRENT_DEVICE(first);
  second.set_host_wait(before_second);
}

}  // namespace conformance::device_cases
