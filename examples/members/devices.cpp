// SPDX-License-Identifier: Apache-2.0
// What a program can ask of a device and of the streams, events and pools on it.
#include <runnel/runnel.hpp>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

static const char* words(runnel::HostWait wait) {
  switch (wait) {
    case runnel::HostWait::spin:
      return "spins";
    case runnel::HostWait::yield:
      return "yields";
    case runnel::HostWait::block:
      return "sleeps";
    case runnel::HostWait::automatic:
      break;
  }
  return "does what the runtime chooses";
}

static void describe(runnel::Device device) {
  const runnel::ComputeCapability kernels = device.compute_capability();
  const runnel::PriorityRange priorities = device.priority_range();
  const runnel::MemoryInfo memory = device.memory_info();
  std::cout << to_string(device) << " is " << device.name() << ", uuid " << device.uuid()
            << ", on the bus at \"" << device.pci_bus_id() << "\"\n  kernels " << kernels.major
            << '.' << kernels.minor << ", " << device.multiprocessor_count() << " multiprocessors, "
            << device.async_engine_count() << " copy engines, " << device.hardware_queues()
            << " queues\n  " << (memory.free >> 20) << " of " << (memory.total >> 20)
            << " MiB free, pools: " << device.has_memory_pools()
            << ", waits for numbers: " << device.has_stream_memory_operations()
            << ", partitions: " << device.has_partitions()
            << "\n  kernels reach pinned memory: " << device.can_map_host_memory()
            << ", pageable memory: " << device.has_pageable_memory_access()
            << " (by the host's page tables: " << device.can_use_host_page_tables()
            << ")\n  priorities " << priorities.greatest << " to " << priorities.least
            << ", a thread that waits " << words(device.host_wait()) << '\n';
  // A device is found again by its names, whatever order this process sees the devices in.
  if (runnel::Device::from_uuid(device.uuid()) != device)
    throw std::logic_error{"another device has this uuid"};
  if (!device.pci_bus_id().empty() &&
      runnel::Device::from_pci_bus_id(device.pci_bus_id()) != device)
    throw std::logic_error{"another device has this place on the bus"};
}

static void let_devices_reach_each_other() {
  for (int here = 0; here < runnel::Device::count(); ++here)
    for (int there = 0; there < runnel::Device::count(); ++there) {
      const runnel::Device device{here}, peer{there};
      if (here == there || !device.can_access_peer(peer)) continue;
      // kernels of this device may now follow pointers into the other one's memory
      device.enable_peer_access(peer);
      device.disable_peer_access(peer);
    }
}

static void describe(runnel::StreamRef stream) {
  std::cout << to_string(stream) << " has the id " << stream.id() << ", the name \""
            << stream.name() << "\", priority " << stream.priority()
            << ", orders with the default stream: " << stream.is_blocking()
            << ", is being captured: " << stream.is_capturing() << ", handle " << stream.native()
            << '\n';
}

int main() {
  if (runnel::Device::count() == 0) {
    std::cout << runnel::Device::why_no_device() << '\n';
    return 0;
  }
  const runnel::RuntimeVersion version = runnel::runtime_version();
  std::cout << "runtime " << version.runtime << ", driver for up to " << version.driver << '\n';
  for (int i = 0; i < runnel::Device::count(); ++i) describe(runnel::Device{i});
  let_devices_reach_each_other();

  const runnel::Device device = runnel::Device::current();
  const runnel::PriorityRange range = device.priority_range();
  const runnel::Priority urgent = range.clamp(-100);
  if (!range.contains(urgent)) return 1;
  // HostWait::block would save the processor of a thread that waits long
  device.set_host_wait(device.host_wait());

  runnel::Stream stream{device, {.priority = urgent, .name = "members"}};
  describe(stream);
  // One default stream for each thread, as with --default-stream per-thread.
  describe(runnel::StreamRef::per_thread_default(device));

  // Events. One that was recorded can be recorded again, and waited for until a point in time.
  runnel::Event event;
  event.record(stream);
  {
    const runnel::StreamGuard guard{stream};
    event.record();  // on the current stream, which is the guarded one
    runnel::StreamGuard changed{stream};
    // guards another stream instead
    changed.reset(runnel::current_stream().device().default_stream());
    std::cout << "the guard will restore " << guard.original_stream() << " on "
              << guard.original_device() << '\n';
  }
  if (!event.synchronize_until(std::chrono::steady_clock::now() + 10s)) return 1;
  std::cout << to_string(event) << ", handle " << event.native() << ", of " << event.device()
            << '\n';
  runnel::Event moved = std::move(event);
  if (event.is_valid() || !moved.is_valid())
    return 1;  // NOLINT: what is left of a moved object is the point
  runnel::Event again =
      runnel::Event::from_native(moved.release(), device, runnel::Ownership::take);
  const runnel::TimedEvent start{stream}, stop{stream};
  if (!stream.synchronize_until(std::chrono::steady_clock::now() + 10s)) return 1;
  std::cout << "an empty stretch of the stream takes " << (stop - start).count() << " ns\n";

  // A handle leaves one Stream and enters another.
  runnel::Stream owner = runnel::Stream::from_native(stream.release(), runnel::Ownership::take);
  if (stream.is_valid() || !owner.is_valid()) return 1;

  // A pool: two leases at a time, the third waits for one that comes back.
  runnel::StreamPool pool{device, {.size = 1, .max = 2}};
  {
    const runnel::StreamLease first = pool.acquire(), second = pool.acquire();
    const auto soon = std::chrono::steady_clock::now() + 1ms;
    std::cout << "the pool of " << pool.device() << " has " << pool.size() << " streams, "
              << pool.leased() << " are leased, " << pool.growth()
              << " were made because all were; a third comes in time: "
              << pool.acquire_until(soon).has_value() << '\n';
  }

  // Until changed, calls that name no stream use this one, and the device is current.
  owner.use();
  if (runnel::Device{device.ordinal()} != device) return 1;
  device.use();

  // The streams that a thread has set, for another thread's scope.
  runnel::set_current_stream(owner);
  const runnel::StreamContext here;
  const runnel::StreamContext::Guard with{here};
  if (!runnel::synchronize_for(10s) ||
      !device.synchronize_until(std::chrono::steady_clock::now() + 10s))
    return 1;
  return 0;
}
