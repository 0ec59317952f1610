// SPDX-License-Identifier: Apache-2.0
#include "base/announce.hpp"
#include "base/never_destroyed.hpp"
#include "base/parse_size.hpp"
#include "state.hpp"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace host {
namespace {

thread_local constinit int current = 0;

[[nodiscard]] std::size_t machine_memory() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return static_cast<std::size_t>(std::max(pages, 1L)) *
         static_cast<std::size_t>(std::max(page, 4096L));
}

[[nodiscard]] std::string processor_name() {
  std::ifstream info{"/proc/cpuinfo"};
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "host processor";
}

/// Waits for the device's busy streams, in the order of the addresses of their queues. Allocates
/// nothing; instead it searches all streams for each busy one.
void wait_for_each(HostDevice& device) noexcept {
  constexpr std::less<const TaskQueue*> is_before;
  for (TaskQueuePtr last, next;; last = std::exchange(next, nullptr)) {
    {
      const std::lock_guard lock{device.mutex};
      device.for_each_stream([&](const native::host_stream& stream) {
        const TaskQueue* const queue = stream.queue.get();
        const bool is_wanted =
            !queue->is_idle() && (last == nullptr || is_before(last.get(), queue));
        if (is_wanted && (next == nullptr || is_before(queue, next.get()))) next = stream.queue;
      });
    }
    if (next == nullptr) return;
    next->wait_until(next->submitted(), true);
    next->order_after_completed();
  }
}

}  // namespace

int visible_devices() noexcept {
  static const int count =
      detail::number_in_environment("RUNNEL_HOST_DEVICES", 0, detail::max_devices).value_or(1);
  return count;
}

std::size_t memory_of_device() noexcept {
  static const std::size_t bytes =
      detail::size_in_environment("RUNNEL_HOST_MEMORY").value_or(machine_memory());
  return bytes;
}

HostDevice& device_at(int ordinal) {
  return detail::never_destroyed<
      std::array<HostDevice, detail::max_devices>>()[static_cast<std::size_t>(ordinal)];
}

int current_device() noexcept { return current; }

}  // namespace host

namespace backend {

using host::catch_bad_alloc;
using host::invalid_argument;
using host::status_of;

namespace {
[[nodiscard]] bool exists(int device) noexcept {
  return device >= 0 && device < host::visible_devices();
}
}  // namespace

const char* container_options() noexcept { return ""; }
const char* hiding_variable() noexcept { return "RUNNEL_HOST_DEVICES"; }

status device_count(int& count) noexcept {
  count = host::visible_devices();
  return ok;
}

status get_device(int& device) noexcept {
  device = host::current;
  return ok;
}

status set_device(int device) noexcept {
  if (!exists(device)) return status_of(errc::invalid_device);
  host::current = device;
  return ok;
}

status device_name(char* text, std::size_t size, int device) noexcept {
  if (!exists(device)) return status_of(errc::invalid_device);
  return catch_bad_alloc([&] {
    static const std::string& name = *new std::string{host::processor_name()};
    std::snprintf(text, size, "%s", name.c_str());
    return ok;
  });
}

status device_attribute(int& value, Attribute attribute, int device) noexcept {
  if (!exists(device)) return status_of(errc::invalid_device);
  switch (attribute) {
    case Attribute::compute_capability_major:
    case Attribute::compute_capability_minor:
      value = 0;
      break;
    case Attribute::async_engine_count:
      value = 2;
      break;
    case Attribute::multiprocessor_count:
      value = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
      break;
    case Attribute::hardware_queues:
      value = 0;
      break;  // Streams share no queues: each busy stream has its own thread.
    case Attribute::can_map_host_memory:
    case Attribute::can_pin_read_only_memory:
    case Attribute::pageable_memory_access:
    case Attribute::pageable_memory_access_uses_host_page_tables:
    case Attribute::memory_pools:
    case Attribute::stream_memory_operations:
      value = 1;
      break;
    case Attribute::partitions:
      value = 0;
      break;
  }
  return ok;
}

status device_uuid(unsigned char (&bytes)[16], int device) noexcept {
  if (!exists(device)) return status_of(errc::invalid_device);
  std::fill(std::begin(bytes), std::end(bytes), static_cast<unsigned char>(0));
  bytes[15] = static_cast<unsigned char>(device + 1);
  return ok;
}

status device_pci_bus_id(char* text, std::size_t, int device) noexcept {
  if (!exists(device)) return status_of(errc::invalid_device);
  *text = '\0';
  return ok;
}

status host_wait(HostWait& wait) noexcept {
  wait = HostWait::automatic;
  return ok;
}

status set_host_wait(HostWait wait) noexcept {
  return wait == HostWait::automatic ? ok : status_of(errc::not_supported);
}

status priority_range(int& least, int& greatest) noexcept {
  least = host::least_priority;
  greatest = host::greatest_priority;
  return ok;
}

status device_synchronize() noexcept {
  host::HostDevice& device = host::device_at(host::current);
  try {
    std::vector<host::Wait> ends;
    {
      const std::lock_guard lock{device.mutex};
      device.for_each_stream([&](const native::host_stream& stream) {
        if (stream.queue->is_idle())
          stream.queue->order_after_completed();
        else
          ends.push_back(host::TaskQueue::end_of(stream.queue));
      });
    }
    for (const host::Wait& end : ends) end.block_caller(true);
  } catch (const std::bad_alloc&) {
    host::wait_for_each(device);
  }
  sync::happens_after(&device);  // the work of streams that have ended
  return ok;
}

status can_access_peer(int& can, int device, int peer) noexcept {
  can = exists(device) && exists(peer);
  return ok;
}
status enable_peer_access(int peer) noexcept {
  return exists(peer) ? ok : status_of(errc::invalid_device);
}
status disable_peer_access(int peer) noexcept {
  return exists(peer) ? ok : status_of(errc::invalid_device);
}

status runtime_version(int& version) noexcept {
  version = RUNNEL_VERSION_MAJOR * 10000 + RUNNEL_VERSION_MINOR * 100 + RUNNEL_VERSION_PATCH;
  return ok;
}
status driver_version(int& version) noexcept { return runtime_version(version); }

}  // namespace backend
}  // namespace runnel::inline RUNNEL_ABI
