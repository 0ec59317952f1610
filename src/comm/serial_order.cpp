// SPDX-License-Identifier: Apache-2.0
#include "comm/serial_order.hpp"

#include "base/max_devices.hpp"
#include "base/never_destroyed.hpp"

#include <array>
#include <cstddef>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Orders {
  std::array<SerialOrder, max_devices> of_devices;
  sync::Mutex lock;  // Guards `of_communicators`.
  std::vector<std::weak_ptr<SerialOrder>> of_communicators;
};
Orders& orders() { return never_destroyed<Orders>(); }

}  // namespace

SerialOrder& order_of_device(Device device) {
  return orders().of_devices.at(static_cast<size_t>(device.ordinal()));
}

std::shared_ptr<SerialOrder> make_serial_order() {
  auto made = std::make_shared<SerialOrder>();
  const std::lock_guard lock{orders().lock};
  std::erase_if(orders().of_communicators, [](const auto& each) { return each.expired(); });
  orders().of_communicators.push_back(made);
  return made;
}

void wait_for_all_orders() {
  std::vector<std::shared_ptr<SerialOrder>> own;
  {
    const std::lock_guard lock{orders().lock};
    for (const auto& each : orders().of_communicators) own.push_back(each.lock());
  }
  for (SerialOrder& order : orders().of_devices) order.wait();
  for (const auto& order : own)
    if (order != nullptr) order->wait();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
