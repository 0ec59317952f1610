// SPDX-License-Identifier: Apache-2.0
#include "comm/devices.hpp"

#include "base/max_devices.hpp"
#include "base/never_destroyed.hpp"

#include <runnel/device.hpp>

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

struct Devices {
  std::array<sync::Atomic<CommunicatingDevice*>, max_devices> all{};
  sync::Mutex lock;  // Guards `orders`, and changes of `all`.
  std::vector<std::weak_ptr<SerialOrder>> orders;
};
Devices& devices() { return never_destroyed<Devices>(); }

/// The live orders that make_serial_order() has created.
std::vector<std::shared_ptr<SerialOrder>> live_orders() {
  std::vector<std::shared_ptr<SerialOrder>> found;
  const std::lock_guard lock{devices().lock};
  for (const auto& each : devices().orders)
    if (auto order = each.lock()) found.push_back(std::move(order));
  return found;
}

}  // namespace

CommunicatingDevice& communicating_device(int ordinal) {
  sync::Atomic<CommunicatingDevice*>& place = devices().all.at(static_cast<std::size_t>(ordinal));
  if (CommunicatingDevice* const found = place.load(std::memory_order_acquire)) [[likely]]
    return *found;
  const bool is_host_memory = Device{ordinal}.hardware_queues() == 0;
  const std::lock_guard lock{devices().lock};
  if (place.load(std::memory_order_relaxed) == nullptr)
    place.store(new CommunicatingDevice{{}, is_host_memory}, std::memory_order_release);
  return *place.load(std::memory_order_relaxed);
}

std::shared_ptr<SerialOrder> make_serial_order() {
  auto made = std::make_shared<SerialOrder>();
  const std::lock_guard lock{devices().lock};
  std::erase_if(devices().orders, [](const auto& each) { return each.expired(); });
  devices().orders.push_back(made);
  return made;
}

void wait_for_all_orders() {
  for (const auto& device : devices().all)
    if (CommunicatingDevice* const found = device.load(std::memory_order_acquire))
      found->order.wait();
  for (const auto& order : live_orders()) order->wait();
}

}}}  // namespace runnel::RUNNEL_ABI::detail
